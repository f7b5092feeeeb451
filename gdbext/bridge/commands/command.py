"""Runs one row of the command table: parse, answer, render. The only error boundary of gdbext.

A fault of the user or the target is one line; a defect of ours is a traceback. With ``--json`` both
also become an envelope with ``error``, because a pipeline reads that and not gdb's exit status.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence, Union

import gdb

from gdbext.bridge.commands.charset import warn, writable
from gdbext.bridge.commands.context import Context
from gdbext.bridge.expressions import language, selection
from gdbext.errors import DebuggerError, GdbextError, NoHeapError, StoppedError, UsageError, out_of_memory
from gdbext.files import replacing
from gdbext.grammar.arguments import Arguments, find_json, nearest, parse, refuse_input
from gdbext.progress import checked, limit_threads
from gdbext.starting import dependencies
from gdbext.wording import encodable, only_ascii, printable

# Characters handed to gdb at once: its pager looks at each write.
_BATCH = 1 << 15
_WIDTH = 100  # where gdb's own is unlimited, as in batch


class SpecCommand(gdb.Command):
    """A command of the table.

    :param spec: its ``CommandSpec``.
    :param name: under which gdb knows it, ``gx`` included.
    """

    def __init__(self, spec: Any, name: str) -> None:
        self.spec = spec
        self.__doc__ = writable(_brief(spec, name))
        super().__init__(name, gdb.COMMAND_DATA)

    def invoke(self, text: str, from_tty: bool) -> None:
        """Run the command."""
        run(self.spec, text)

    def complete(self, text: str, word: Optional[str]) -> Union[int, Sequence[str]]:
        """Return what the line may go on with."""
        from gdbext.bridge.commands.completing import complete

        return complete(self.spec, text, word)


class PrefixCommand(gdb.Command):
    """A word that only leads to others: ``gx``, ``glibc``."""

    def __init__(self, name: str, summary: str) -> None:
        self.name = name
        self.words: set[str] = set()  # its sub-commands
        self.__doc__ = summary
        super().__init__(name, gdb.COMMAND_DATA, gdb.COMPLETE_NONE, True)

    def invoke(self, text: str, from_tty: bool) -> None:
        """List the sub-commands, or name the one that was probably meant."""
        if not text.strip() or text.split()[0] in ("-h", "--help"):
            gdb.execute(f"help {self.name}")
            return
        word = text.split()[0]
        close = nearest(word, sorted(self.words))
        hint = f"did you mean {self.name} {close}?" if close else f"help {self.name} lists them"
        raise gdb.GdbError(writable(f"gdbext: {self.name}: no command {word!r}; {hint}"))


def run(spec: Any, text: str) -> None:
    """Answer a command line; every error ends here.

    :raises gdb.GdbError: the one line, for gdb to print.
    """
    context = Context()
    fault = attempt(context, lambda: _answer(spec, text, context))
    if fault is not None:
        _fail(spec, context, _write_envelope(spec, text, context, fault) or fault)
    elif context.settings.get("safe"):
        note_error(None)


def attempt(context: Context, work: Callable[[], None]) -> Optional[GdbextError]:
    """Do what is to be done for a command; return what was wrong, or None."""
    try:
        work()
    except (GdbextError, KeyboardInterrupt, gdb.error) as error:
        return _explain(error, context)
    except MemoryError:
        return out_of_memory()
    except Exception as error:  # noqa: BLE001  the one boundary: the traceback is shown
        for line in traceback.format_exc().split("\n")[:-1]:
            warn(line)
        return InternalError(f"{type(error).__name__}: {error}", "please report the traceback")
    finally:
        context.progress.clear()
        context.close()
    return None


@contextmanager
def working(spec: Any, context: Context) -> Iterator[None]:
    """Have gdb as commands need it, and interrupts heard; afterwards gdb is as it was."""
    # A command that only runs others leaves them the user's language.
    with nullcontext() if spec.raw else language.like_c(), selection.kept(), checked(context.progress.check):
        yield


class InternalError(GdbextError):
    """A defect of gdbext, told to whoever reads the envelope."""

    kind = "internal"


def note_error(message: Optional[str]) -> None:
    """Keep the last error in ``$gx_error`` for scripts; it is void after a success."""
    gdb.set_convenience_variable("gx_error", message)


def _answer(spec: Any, text: str, context: Context) -> None:
    arguments = parse(text, spec.all_options, spec.positional)
    if arguments.flag("help"):
        from gdbext.grammar.usage import command_help

        gdb.write(writable(command_help(spec)))
        return
    spec.check(arguments)
    has_text = not spec.raw and not arguments.flag("json")
    dependencies.load(*dependencies.NEEDED[: 2 if has_text else 1])  # tabulate makes the text
    with working(spec, context):
        report = make_report(spec, arguments, context)
        if report is not None:
            _show(spec, arguments, context, report)


def make_report(spec: Any, arguments: Arguments, context: Context) -> Any:
    """Return the report of a command, or None where it only runs others."""
    limit_threads(context.settings.get("threads", 0))
    report = find_function(spec.run)(context.session, arguments)
    return None if report is None else _completed(context, report)


def _completed(context: Context, report: Any) -> Any:
    """Add what is wrong with the target itself, the same for every command that has asked for it."""
    from gdbext.analysis.missing import with_clock, with_target

    kernels = sys.modules.get("gdbext.kernels")  # only where the answer needed them
    if kernels is not None and (remark := kernels.take_remark()):
        warn(f"gdbext: {remark}")
    report = with_clock(report, context.progress.spent)
    target = context.known_target
    return report if target is None else with_target(report, target)


def find_function(path: str) -> Any:
    """Return what a row of the command table names; its module is loaded now.

    :param path: "module:function" of the commands.
    """
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(f"gdbext.commands.{module}"), name)


def _show(spec: Any, arguments: Arguments, context: Context, report: Any) -> None:
    from gdbext import render
    from gdbext.bridge.commands.written import check_written

    limit = arguments.value("limit")
    context.progress.clear()
    if not arguments.flag("json"):
        width = int(gdb.parameter("width") or _WIDTH)
        shown = spec.shown if limit is None else limit
        color, evidence = _wants_color(arguments.value("color")), arguments.flag("evidence")
        exact = arguments.flag("bytes")
        _write(render.text(report, exact=exact, limit=shown, width=width, color=color, evidence=evidence))
        if report.bare:
            write_beside("".join(render.remarks(report, width)))
    else:
        pieces = render.json_pieces(report, schema=spec.schema, target=context.known_target, limit=limit)
        _write_json(arguments.value("json"), pieces)
    check_written()


def _wants_color(when: str) -> bool:
    """Return whether text is coloured, which on its own it is where gdb colours what it prints itself."""
    if when != "auto":
        return when == "always"
    # gdb has neither width nor height in batch, while `pipe` runs, and where a script takes what is printed
    shown = gdb.parameter("width") or gdb.parameter("height")
    styled = gdb.parameter("style enabled") and not os.environ.get("NO_COLOR")
    return bool(shown and styled and sys.__stdout__ is not None and sys.__stdout__.isatty())


def _write(pieces: Iterable[str]) -> None:
    """Hand pieces to gdb, which pages them or returns them to ``to_string``."""
    batch: list[str] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece)
        if size >= _BATCH:
            gdb.write(writable("".join(batch)))
            batch, size = [], 0
    gdb.write(writable("".join(batch)))


def write_beside(text: str) -> None:
    """Write to the real standard error: gdb's ``pipe`` hands its own to the shell command, among the addresses.

    Where it is closed or full that costs no answer.
    """
    if sys.__stderr__ is not None:
        with suppress(OSError):
            sys.__stderr__.write(encodable(text, "ascii") if only_ascii() else text)
            sys.__stderr__.flush()


def _write_json(path: Optional[str], pieces: Iterable[str]) -> None:
    if path is None:
        _write(pieces)
        return
    _refuse_inputs(os.path.expanduser(path))
    try:
        with replacing(os.path.expanduser(path)) as stream:
            stream.writelines(map(str.encode, pieces))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", "name another file") from None


def _refuse_inputs(path: str) -> None:
    """Refuse a file for an answer that gdb has open itself."""
    if not os.path.exists(path):  # gdb lists all sections to name the core
        return
    from gdbext.bridge.decoded import name_of
    from gdbext.bridge.ports.target import find_core_path

    refuse_input("--json", path, find_core_path(), "core")
    refuse_input("--json", path, name_of(gdb.current_progspace()), "executable")


def _explain(error: BaseException, context: Context) -> GdbextError:
    if isinstance(error, NoHeapError) and context.known_target is not None:
        from gdbext.analysis.missing import explained

        return explained(error, context.known_target)
    if isinstance(error, GdbextError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return StoppedError("interrupted")
    return DebuggerError(" ".join(str(error).split()).rstrip("."))


def _write_envelope(spec: Any, text: str, context: Context, fault: GdbextError) -> Optional[GdbextError]:
    """Write the error where the JSON was asked for; return the fault of that, or None."""
    asked: Union[bool, str] = False if spec.raw else find_json(text)
    if asked is False:
        return None
    from gdbext import render

    try:
        pieces = [render.error_json(spec.schema, context.known_target, fault)]
        _write_json(asked if isinstance(asked, str) else None, pieces)
    except UsageError as unwritable:
        return unwritable
    return None


def _fail(spec: Any, context: Context, fault: GdbextError) -> None:
    line = writable(printable(f"gdbext: {spec.title}: {fault}"))
    if not context.settings.get("safe"):
        raise gdb.GdbError(line)
    warn(line)
    note_error(line)


def _brief(spec: Any, name: str) -> str:
    """Return what gdb's own ``help`` shows."""
    rest = f" {spec.expression or spec.words}" if spec.expression or spec.words else ""
    example = f"\nExample: {spec.example}" if spec.example else ""
    description = f"\n{spec.description}" if spec.description else ""
    usage = f"Usage: {name} [OPTION]...{rest}"
    return f"{spec.summary}.\n{usage}{description}{example}\n{name} -h lists the options."
