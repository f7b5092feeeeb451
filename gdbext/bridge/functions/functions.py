"""The convenience functions ``$gx_…``, made for conditions of breakpoints.

gdb stops the program when a condition fails, so these never do: what cannot be answered is 0, and
``$gx_why`` says why. A text as argument is an expression, evaluated inside the function: unlike a plain argument,
it cannot end the condition either. All return integers.
"""

from __future__ import annotations

from typing import Callable, Optional, Sequence

import gdb

from gdbext.bridge.commands.charset import warn
from gdbext.bridge.expressions import language
from gdbext.bridge.expressions.harmless import one_line
from gdbext.bridge.functions import parameters, remembered
from gdbext.bridge.stops import settings
from gdbext.bridge.stops.progress import TimeUp
from gdbext.errors import GdbextError, UsageError
from gdbext.structures.walk.counting import NODE_LIMIT, count_nodes

WHY, QUIET = "gx_why", "gx_quiet"

_why: Optional[str] = None
_told: "set[str]" = set()
_TOLD = 20  # different mistakes that are printed


class Function(gdb.Function):
    """A convenience function that never raises.

    :param name: without the ``$``.
    :param usage: its arguments, as the help writes them.
    :param counts: how many arguments it takes.
    :param answer: what it does; returns an integer and why it is not the whole truth, or None.
    """

    def __init__(
        self,
        name: str,
        usage: str,
        counts: Sequence[int],
        answer: "Callable[[Sequence[gdb.Value]], tuple[int, Optional[str]]]",
    ) -> None:
        self.__doc__ = f"{answer.__doc__}\nUsage: ${name} ({usage})"
        self._usage = f"${name}({usage})"
        self._counts = counts
        self._answer = answer
        super().__init__(name)

    def invoke(self, *arguments: gdb.Value) -> int:
        """Return the answer, or 0; the reason goes into ``$gx_why``."""
        number, why = 0, None
        try:
            if len(arguments) not in self._counts:
                raise UsageError(f"{len(arguments)} arguments", f"write {self._usage}")
            with language.like_c():
                number, why = self._answer(arguments)
        except TimeUp:
            why = "stopped by the time budget"
        except (GdbextError, gdb.error) as error:
            why = one_line(error)
            if isinstance(error, UsageError):
                _tell_once(f"{self._usage}: {why}")
        except Exception as error:  # noqa: BLE001  a condition must not stop the program for a defect of ours
            why = f"defect of gdbext, please report it: {type(error).__name__}: {error}"
            _tell_once(f"{self._usage}: {why}")
        _note_why(why)
        return number


def register() -> None:
    """Make the functions known to gdb."""
    for name, usage, counts, answer in _FUNCTIONS:
        Function(name, usage, counts, answer)
    remembered.listen()


def _tell_once(line: str) -> None:
    """Print a mistake the first time: a condition that can never be true would be waited for in vain.

    Not where ``$gx_quiet`` is set: that a canned command sets, which prints ``$gx_why`` itself.
    """
    if gdb.convenience_variable(QUIET) is not None:
        return
    if line not in _told and len(_told) < _TOLD:
        _told.add(line)
        warn(f"gdbext: {line}")


def _note_why(why: Optional[str]) -> None:
    global _why
    if why != _why:
        gdb.set_convenience_variable(WHY, why)
        _why = why


def _list_length(arguments: Sequence[gdb.Value]) -> "tuple[int, Optional[str]]":
    """Count the nodes of a linked list.

    HEAD is a pointer to the first node, or a structure that holds one and ends the list (a list_head);
    MEMBER the name, path or offset of the link. A text as HEAD is evaluated here, so that an error in it is no
    error of the condition. The answer is 0 for a list that leads to memory that cannot be read; LIMIT (by default
    1000000) for one that is longer and for a cycle; what was counted until then when `set gx function-seconds`
    are over. $gx_why says why."""
    most = _positive(arguments[2]) if len(arguments) > 2 else NODE_LIMIT
    head = parameters.read_operand(arguments[0])
    if len(arguments) > 1:
        return _count(head, parameters.member_of(arguments[1]), most)
    from gdbext.bridge.functions.shaped import list_length

    return list_length(head, most, _seconds())


def member_length(head: str, member: str) -> "tuple[int, Optional[str]]":
    """Return what ``$gx_listlen(HEAD, MEMBER)`` answers, and ``$gx_why``.

    :raises UsageError: when the head cannot be evaluated, or has no such member.
    """
    return _count(parameters.read_expression(head), member, NODE_LIMIT)


def _count(head: gdb.Value, member: str, most: int) -> "tuple[int, Optional[str]]":
    chain = parameters.read_chain(head, member)
    count = count_nodes(parameters.memory_reader(), chain, most, _seconds())
    return (0 if count.broken else count.nodes), count.why


def _longest_bin(arguments: Sequence[gdb.Value]) -> "tuple[int, Optional[str]]":
    """Count the entries of the longest bin of a hash table, or of all tables of a group.

    TABLE is one that a shape fits (gx shapes list); as a text it is looked for as commands do, in the globals of the
    executable and in other frames too. It walks the whole table: at each hit of a breakpoint,
    $gx_listlen of one bin is far quicker. The answer is 0 when the table cannot be read. Afterwards $gx_bin is the
    bin's number, $gx_bin_table the address of its table, $gx_bin_first its first entry, and $gx_bin_link the
    offset of the link in an entry."""
    from gdbext.bridge.expressions import values
    from gdbext.bridge.expressions.locate import locate
    from gdbext.bridge.functions.shaped import longest_bin

    text = parameters.find_text(arguments[0])
    table = values.located(parameters.read_operand(arguments[0]), "TABLE") if text is None else locate(text)
    return longest_bin(table, _seconds())


def _container_of(arguments: Sequence[gdb.Value]) -> "tuple[int, Optional[str]]":
    """Return the address of the structure TYPE whose MEMBER is at POINTER; 0 for a null pointer.

    TYPE and MEMBER are texts: $gx_container_of(link, "struct item", "list.entry")."""
    pointer = parameters.read_operand(arguments[0])
    offset = parameters.find_offset(
        parameters.text_of(arguments[1], "TYPE"), parameters.text_of(arguments[2], "MEMBER")
    )
    address = parameters.number_of(pointer)
    if not address:
        return 0, "null pointer"
    return (address - offset) & parameters.word_mask(), None


def _note(arguments: Sequence[gdb.Value]) -> "tuple[int, Optional[str]]":
    """Remember VALUE under NAME for this thread; the answer is always 0.

    As the condition of a breakpoint it stops nothing. A text as VALUE is an expression."""
    key = parameters.text_of(arguments[0], "NAME")
    remembered.forget(key)
    remembered.note(key, parameters.read_sized(arguments[1]))
    return 0, None


def _differs(arguments: Sequence[gdb.Value]) -> "tuple[int, Optional[str]]":
    """Return 1 when this thread's last $gx_note under NAME was another value, else 0.

    Values of different sizes are compared in the bytes that both have. A text as VALUE is an expression."""
    noted = remembered.find(parameters.text_of(arguments[0], "NAME"))
    if noted is None:
        return 0, "this thread has noted nothing"
    value = parameters.read_sized(arguments[1])
    return int(noted.differs(value)), None


def _every(arguments: Sequence[gdb.Value]) -> "tuple[int, Optional[str]]":
    """Return 1 at each COUNT-th call with this NAME, else 0; all threads count together."""
    key, step = parameters.text_of(arguments[0], "NAME"), parameters.number_of(arguments[1])
    if not step:
        return 0, "COUNT is 0"
    return int(remembered.count(key) % step == 0), None


def _positive(value: gdb.Value) -> int:
    number = parameters.signed_of(value)
    if number <= 0:
        raise UsageError(f"LIMIT is {number}", "write 1 or more")
    return number


def _seconds() -> int:
    return settings.current_value("function-seconds")


_FUNCTIONS = (
    ("gx_listlen", 'HEAD, "MEMBER", LIMIT', (1, 2, 3), _list_length),
    ("gx_maxbin", "TABLE", (1,), _longest_bin),
    ("gx_container_of", 'POINTER, "TYPE", "MEMBER"', (3,), _container_of),
    ("gx_note", '"NAME", VALUE', (2,), _note),
    ("gx_differs", '"NAME", VALUE', (2,), _differs),
    ("gx_every", '"NAME", COUNT', (2,), _every),
)
