"""``gx breakpoints``: conditional breakpoints whose command lists go on by themselves."""

from __future__ import annotations

import time
from typing import Any, Callable, Mapping, Optional, Sequence

import gdb
from gdbext.commands.reports import BreakpointList, BreakpointRow

from gdbext.bridge.commands.charset import writable
from gdbext.bridge.decoded import name_of
from gdbext.bridge.expressions.harmless import check_harmless, one_line
from gdbext.bridge.expressions.selection import find_thread
from gdbext.bridge.functions import breakpoints, functions, parameters, remembered
from gdbext.bridge.functions.breakpoints import Placed, Plan, key_of
from gdbext.errors import GdbextError, UsageError
from gdbext.grammar.arguments import parse_int
from gdbext.report import Report
from gdbext.wording import count_text, printable


def breakpoints_command(session: Any, arguments: Any) -> Optional[Report]:
    """Set, list or delete breakpoints, or print one event of theirs."""
    action, *rest = arguments.words or [""]
    if action not in _ACTIONS:
        raise UsageError(
            f"no action {action!r}" if action else "an action is missing", f"write {_ACTION_NAMES}"
        )
    return _ACTIONS[action](arguments, rest)


def _set_chain(arguments: Any, rest: Sequence[str]) -> Report:
    location = _location(rest, "chain")
    head, member, most = _needed(arguments, "head", "next", "longer")
    length = _length_of(head, member, most + 1)
    plan = Plan(
        "chain",
        location,
        f"longer than {most}",
        [head],
        lambda number: f"{length} > {most}",
        lambda number: _commands(arguments, f"event {number} {_counted(head, member)}"),
    )
    return _told(arguments, [breakpoints.place(plan)])


def _set_hash(arguments: Any, rest: Sequence[str]) -> Report:
    location = _location(rest, "hash")
    stored, computed_at, computed = _needed(arguments, "stored", "computed-at", "computed")
    noting = Plan(
        "note",
        computed_at,
        f"notes {computed}, stops never",
        [computed],
        lambda number: f'$gx_note("{key_of(number)}", {_literal(computed)})',
        lambda number: [],
    )
    noted = breakpoints.place(noting)
    key = key_of(noted.number)
    plan = Plan(
        "hash",
        location,
        f"{stored} is not what breakpoint {noted.number} noted",
        [stored],
        lambda number: f'$gx_differs("{key}", {_literal(stored)})',
        lambda number: _commands(arguments, f"event {number} --stored {_word(stored)} --noted {key}"),
    )
    try:
        return _told(arguments, [noted, breakpoints.place(plan, noted)])
    except UsageError:
        breakpoints.delete([noted.number])
        raise


def _set_every(arguments: Any, rest: Sequence[str]) -> Report:
    location = _location(rest, "every")
    hits, head, member = _needed(arguments, "hits", "head", "next")
    if not hits:
        raise UsageError("--hits is 0", "write 1 or more")
    plan = Plan(
        "every",
        location,
        f"every {hits} hits" if hits > 1 else "every hit",
        [head],
        lambda number: f'$gx_every("{key_of(number)}", {hits})',
        lambda number: _commands(
            arguments, f"event {number} --counted {key_of(number)} {_counted(head, member)}"
        ),
    )
    return _told(arguments, [breakpoints.place(plan)])


def _list(arguments: Any, rest: Sequence[str]) -> Report:
    if rest:
        raise UsageError(f"list takes no argument, got {rest[0]!r}", "gx breakpoints list")
    return _report(breakpoints.listed())


def _delete(arguments: Any, rest: Sequence[str]) -> Report:
    if not rest:
        raise UsageError("which?", "gx breakpoints delete NUMBER…, or delete all")
    every = [one.number for one in breakpoints.listed()]
    numbers = every if rest == ["all"] else [parse_int(word) for word in rest]
    return _report(breakpoints.delete(numbers))


def _tell_event(arguments: Any, rest: Sequence[str]) -> None:
    """Print the line of one event; the breakpoint's command list calls it."""
    number = parse_int(rest[0]) if rest else 0
    figures = []
    if arguments.value("counted"):
        figures.append(f"hit {remembered.find_count(arguments.value('counted'))}")
    if arguments.value("stored"):
        figures += _hashes(arguments.value("stored"), arguments.value("noted") or "")
    if arguments.value("head"):
        figures.append(_length(arguments.value("head"), arguments.value("next") or ""))
    line = f"{_now()} {_thread()} breakpoint {number}: {', '.join(figures)}"
    gdb.write(writable(printable(line)) + "\n")
    gdb.flush()


def _hashes(stored: str, key: str) -> Sequence[str]:
    noted = remembered.find(key)
    try:
        value = f"{parameters.read_sized(parameters.read_expression(stored)).number:#x}"
    except (GdbextError, gdb.error) as error:
        value = f"? ({one_line(error)})"
    return [f"stored {value}", f"computed last {noted.number:#x}" if noted else "computed last ?"]


def _length(head: str, member: str) -> str:
    nodes: Optional[int] = None
    try:
        nodes, why = functions.member_length(head, member)
    except (GdbextError, gdb.error) as error:
        why = one_line(error)
    entries = "? entries" if nodes is None else count_text(nodes, "entry", "entries")
    return f"{entries} from {head}" + (f" ({why})" if why else "")


def _now() -> str:
    now = time.time()
    return time.strftime("%H:%M:%S", time.localtime(now)) + f".{int(now * 1000) % 1000:03}"


def _thread() -> str:
    thread = find_thread()
    if thread is None:
        return "no thread"
    name = name_of(thread, "name")
    return f"thread {thread.num}" + (f" ({name})" if name else "")


# What is set.


def _commands(arguments: Any, event: str) -> Sequence[str]:
    stops = arguments.flag("stop")
    lines = [] if stops else ["silent"]
    lines.append(f"gx safe gx breakpoints {event}")
    lines += [f"gx safe {command}" for command in arguments.value("run") or ()]
    return lines if stops else [*lines, "continue"]


def _location(rest: Sequence[str], action: str) -> str:
    if len(rest) != 1 or not rest[0].strip():
        what = f"one location, got {len(rest)}: quote it" if rest else "a location"
        raise UsageError(f"{action} takes {what}", f"gx breakpoints {action} LOCATION …")
    return rest[0].strip()


def _needed(arguments: Any, *names: str) -> Sequence[Any]:
    missing = [f"--{name}" for name in names if arguments.value(name) is None]
    if missing:
        raise UsageError(f"{' and '.join(missing)} missing", "gx breakpoints -h has an example of each")
    values = [arguments.value(name) for name in names]
    for value in values:
        if isinstance(value, str):
            check_harmless(value)
    return values


def _length_of(head: str, member: str, most: int) -> str:
    return f"$gx_listlen({_literal(head)}, {_literal(member)}, {most})"


def _counted(head: str, member: str) -> str:
    return f"--head {_word(head)} --next {_word(member)}"


def _literal(text: str) -> str:
    """Return a text as a string literal of gdb's expressions."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _word(text: str) -> str:
    """Return a text as one word of a command line."""
    plain = text and not any(character.isspace() or character in "'\"()[]{}" for character in text)
    return text if plain and not text.startswith("-") else "'" + text.replace("'", "\\'") + "'"


# What is told.


def _told(arguments: Any, placed: Sequence[Placed]) -> Report:
    """Return the report; before it, in text, the commands as they can be copied: never wrapped."""
    if not arguments.flag("json"):
        gdb.write(writable("".join(one.script for one in placed) + "\n"))
    acting = placed[-1]
    notes = [
        f"breakpoint {number} is at the same place: of two that act at once, gdb runs the commands of one only; "
        "another line avoids it"
        for number in breakpoints.find_neighbours(acting)
    ]
    return _report(placed, notes)


def _report(placed: Sequence[Placed], notes: Sequence[str] = ()) -> Report:
    return Report(BreakpointList([_row(one) for one in placed]), notes=notes)


def _row(one: Placed) -> BreakpointRow:
    return BreakpointRow(
        number=one.number,
        kind=one.plan.kind,
        location=one.plan.location,
        acts=one.plan.what,
        events=one.breakpoint.hit_count,
        state=_state(one.breakpoint),
        script=one.script,
    )


def _state(breakpoint: gdb.Breakpoint) -> str:
    if breakpoint.pending:
        return "pending"
    return "enabled" if breakpoint.enabled else "disabled"


_ACTIONS: Mapping[str, "Callable[[Any, Sequence[str]], Optional[Report]]"] = {
    "chain": _set_chain,
    "hash": _set_hash,
    "every": _set_every,
    "list": _list,
    "delete": _delete,
    "event": _tell_event,
}
_ACTION_NAMES = "chain, hash, every, list or delete"
