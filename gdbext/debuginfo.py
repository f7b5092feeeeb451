"""What a debugger knows of a target: names, types, variables, frames. One port, and one null.

All of it is plain data, made as it is asked for. Where no debugger is behind a target, :data:`NO_DEBUG_INFO` knows
nothing, and what needs names or types says that it was not examined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Iterable, Iterator, NamedTuple, Optional, Protocol, Sequence

from gdbext.errors import UsageError
from gdbext.layout import StructLayout
from gdbext.layout.types import Located, Type
from gdbext.process import Module, Thread
from gdbext.report import Problem

if TYPE_CHECKING:  # numpy is not to be asked for before a command needs it
    from gdbext.memory.elf.elfsymbols import Variables

HANDLER = "<signal handler called>"  # what gdb calls the frame that the kernel puts beneath a handler


# ---- by name ----


class Symbol(NamedTuple):
    """An address with the object file that vouches for it.

    :param build_id: of the file that the symbol was read from, hex, or None when it has none.
    """

    name: str
    address: int
    build_id: Optional[str]


class DebugStruct(NamedTuple):
    """A structure's layout from debug info, with the file that it came from."""

    layout: StructLayout
    build_id: Optional[str]


class Symbols(Protocol):
    """What a debugger knows by name. All answers are unverified: see ``verified_symbol``."""

    def find_symbols(self, name: str) -> Sequence[Symbol]:
        """Return every static or global object of that name, from debug info or ``.symtab``."""

    def find_structs(self, name: str) -> Sequence[DebugStruct]:
        """Return the layout of ``struct name`` from every object file that defines it."""

    def find_tls(self, name: str, thread: Thread) -> Optional[int]:
        """Return the address of a thread-local variable in ``thread``, or None."""

    def find_name(self, address: int) -> Optional[str]:
        """Return "symbol+offset" for an address, or None."""


class Types(Protocol):
    """Where types and typed globals come from."""

    def find_type(self, name: str) -> Optional[Type]:
        """Return the complete type of that name ("struct lruhash", "GList", "lruhash"), or None."""

    def find_global(self, name: str) -> Optional[Located]:
        """Return a global or static variable, one of the executable before those of libraries, or None.

        Without debug info the type is None and only the address is known.
        """


# ---- variables and frames ----


class TypedPlace(NamedTuple):
    """An object outside the heaps, or one that a register points at.

    :param address: of the object.
    :param pointed: whether a pointer of the program leads to it, so that a block there may be more than one object.
    """

    address: int
    type: Type
    pointed: bool = False


class Clues(Protocol):
    """What is known by debug info; a session keeps what it has learned."""

    @property
    def problems(self) -> Sequence[Problem]:
        """What could not be examined, known once :meth:`places` has been iterated over."""

    def places(self) -> Iterable[TypedPlace]:
        """Iterate over variables that hold pointers, as many as may be examined."""

    def find_type(self, name: str) -> Optional[Type]:
        """Return the complete type of that name ("struct item", "std::_List_node<int>"), or None."""

    def demangle(self, name: str) -> Optional[str]:
        """Return what the name of type information ("_ZTI7Session") says: "Session"; None when nobody can tell."""


class FramePlace(NamedTuple):
    """Where in a thread's stack a word is.

    :param level: of the frame, as gdb counts.
    :param function: None where it has no name.
    :param variable: with the member ("item.next"); None where debug info knows none there.
    """

    level: int
    function: Optional[str]
    variable: Optional[str]


class RootNames(Protocol):
    """What a debugger knows of roots."""

    def variables_of(self, module: Module) -> Optional[Variables]:
        """Return a module's variables where they are in the target; None where its symbols are not known."""

    def thread_locals_of(self, module: Module, thread: int) -> Optional[Variables]:
        """Return a module's thread-local variables where a thread has them; None where that is not known."""

    def readable(self, name: str) -> str:
        """Return a linker's name as the program's source has it."""

    def find_variable_type(self, name: str, address: int) -> Optional[Type]:
        """Return the type of the variable of that name and address, or None."""

    def find_type(self, name: str) -> Optional[Type]:
        """Return the complete type of that name, or None."""

    def find_frame(self, thread: int, address: int) -> Optional[FramePlace]:
        """Return which frame of a thread a stack address belongs to, or None."""

    def find_in_register(self, thread: int, register: str, value: int) -> Optional[FramePlace]:
        """Return the variable of the newest frame that is in a register, or None."""


class Frame(NamedTuple):
    """One frame of a thread's stack, as a debugger unwinds it.

    :param function: None where it has no name; :data:`HANDLER` for the one beneath a signal handler.
    :param module: file name of the object that ``pc`` is in, without folders, or None.
    :param line: "file.c:120", or None.
    """

    level: int
    pc: int
    stack_pointer: Optional[int]
    function: Optional[str] = None
    module: Optional[str] = None
    line: Optional[str] = None


class Stacks(Protocol):
    """Unwound stacks. An answer may be short, or empty where a stack cannot be unwound."""

    def frames(self, thread: Thread, limit: int) -> Sequence[Frame]:
        """Return the newest frames of a thread, innermost first."""


class FoundVariables(Protocol):
    """An iterator over variables.

    :ivar complete: whether all were examined, known at its end.
    """

    complete: bool

    def __iter__(self) -> Iterator[Located]: ...


# ---- all of it ----


class DebugInfo(Protocol):
    """What a debugger knows of one target at one stop."""

    @property
    def types(self) -> Types:
        """Types and typed globals."""

    @property
    def names(self) -> RootNames:
        """What roots are called."""

    @property
    def stacks(self) -> Stacks:
        """Unwound stacks; hold it, since it keeps what it has unwound."""

    def clues(self, most: Optional[int] = None) -> Clues:
        """Return typed places, and the types that they lead to.

        :param most: variables and frames that are examined; None is as many as the user allows.
        """

    def find_variables(
        self, matches: Callable[[Type], bool], limit: int, most: int, wanted: str = ""
    ) -> FoundVariables:
        """Iterate over the variables whose type is wanted, those inside other variables too.

        :param limit: of variables that are found.
        :param most: of variables that are examined.
        :param wanted: what ``matches`` goes by besides the type, so that answers may be kept; "" where they may not.
        """

    def evaluate(self, expression: str, word_mask: int) -> int:
        """Return an expression's value: a number, a pointer, or the address of an array or structure.

        :param word_mask: results are taken modulo the target's word.
        :raises UsageError: when it has none, or would write to the target or run it.
        """

    def locate(self, expression: str) -> Located:
        """Return what an expression means: an object in memory, a pointer, or a number.

        :raises UsageError: as :meth:`evaluate`.
        """


class NoDebugInfo:
    """No debugger: each part of the port, and the port."""

    problems: Sequence[Problem] = ()
    complete = True

    @property
    def types(self) -> Types:
        """Return itself."""
        return self

    @property
    def names(self) -> RootNames:
        """Return itself."""
        return self

    @property
    def stacks(self) -> Stacks:
        """Return itself."""
        return self

    def clues(self, most: Optional[int] = None) -> Clues:
        """Return itself."""
        return self

    def find_variables(
        self, matches: Callable[[Type], bool], limit: int, most: int, wanted: str = ""
    ) -> FoundVariables:
        """Return itself."""
        return self

    def evaluate(self, expression: str, word_mask: int) -> int:
        """Return the number that it is."""
        try:
            return int(expression, 0) & word_mask
        except ValueError:
            raise UsageError(f"cannot evaluate {expression!r} without a debugger", "give an address") from None

    def locate(self, expression: str) -> Located:
        """Return the number that it is."""
        return Located(expression, None, None, self.evaluate(expression, -1))

    def __iter__(self) -> Iterator[Located]:
        return iter(())

    def find_symbols(self, name: str) -> Sequence[Symbol]:
        """Return nothing."""
        return ()

    def find_structs(self, name: str) -> Sequence[DebugStruct]:
        """Return nothing."""
        return ()

    def find_tls(self, name: str, thread: Thread) -> Optional[int]:
        """Return None."""
        return None

    def find_name(self, address: int) -> Optional[str]:
        """Return None."""
        return None

    def find_type(self, name: str) -> Optional[Type]:
        """Return None."""
        return None

    def find_global(self, name: str) -> Optional[Located]:
        """Return None."""
        return None

    def places(self) -> Iterable[TypedPlace]:
        """Return none."""
        return ()

    def demangle(self, name: str) -> Optional[str]:
        """Return None."""
        return None

    def variables_of(self, module: Module) -> Optional[Variables]:
        """Return None."""
        return None

    def thread_locals_of(self, module: Module, thread: int) -> Optional[Variables]:
        """Return None."""
        return None

    def readable(self, name: str) -> str:
        """Return the name."""
        return name

    def find_variable_type(self, name: str, address: int) -> Optional[Type]:
        """Return None."""
        return None

    def find_frame(self, thread: int, address: int) -> Optional[FramePlace]:
        """Return None."""
        return None

    def find_in_register(self, thread: int, register: str, value: int) -> Optional[FramePlace]:
        """Return None."""
        return None

    def frames(self, thread: Thread, limit: int) -> Sequence[Frame]:
        """Return nothing."""
        return ()


NO_DEBUG_INFO = NoDebugInfo()
