"""The ``gdbext`` program: what it is asked, and who answers."""

from __future__ import annotations

import importlib
import sys
from typing import NoReturn, Optional, Sequence

from gdbext.cli import ending
from gdbext.cli.help import help_text
from gdbext.cli.options import Options, leave_deleted_directory, outline, parse
from gdbext.cli.output import Output
from gdbext.cli.streams import UnwritableError, drop, open_standard, put, tell, tell_traceback
from gdbext.errors import GdbextError, out_of_memory
from gdbext.report import Status
from gdbext.starting.descriptors import leave
from gdbext.starting.failures import TimeOutError, find_limit
from gdbext.version import __version__


def run() -> NoReturn:
    """Run the program and end."""
    leave(main())


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the program.

    :param arguments: its command line without the program's name; None takes ``sys.argv``.
    :return: the exit status.
    """
    open_standard()
    words = sys.argv[1:] if arguments is None else list(arguments)
    ending.heed()
    status = _attempt(words)
    ending.finish(status == Status.FAILED)
    return status


def _attempt(words: Sequence[str]) -> int:
    try:
        with ending.interruptible():
            return _run(words)
    except UnwritableError as error:
        if error.reason:
            tell(f"gdbext: standard output: {error.reason}")
        drop(sys.stdout)  # Python writes the rest at its end
    except OSError as error:
        tell(f"gdbext: {find_limit(error) or error}")
    except KeyboardInterrupt:  # where nothing more could be said
        pass
    except Exception:  # noqa: BLE001  Python's own exit status for it is that of findings
        tell_traceback()
    return int(Status.FAILED)


def _run(words: Sequence[str]) -> int:
    options = outline(words)
    try:
        options = parse(words)
        leave_deleted_directory(options)
        return _answer(options)
    except GdbextError as error:
        return Output(options).fail(options, error)
    except MemoryError:
        return Output(options).fail(options, out_of_memory())
    except KeyboardInterrupt:
        return Output(options).fail(options, TimeOutError("stopped before there was an answer"))


def _answer(options: Options) -> int:
    if options.help or options.version:
        put(help_text(options) if options.help else f"gdbext {__version__}\n")
        return int(Status.CLEAN)
    if options.spec is not None and options.spec.own:
        module, _, name = options.spec.run.partition(":")
        return int(getattr(importlib.import_module(f"gdbext.{module}"), name)(options))
    # Imported now: what starts gdb is not needed to say what is wrong with a line.
    from gdbext.cli.run import answer_all

    return answer_all(options)
