"""A question answered without gdb, where it would add nothing: the same commands, over what the core itself says."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Mapping, Optional, TextIO, Tuple

from gdbext import _mount
from gdbext.bridge.stops.progress import TerminalProgress
from gdbext.errors import GdbextError, NoHeapError, NoTargetError, StoppedError, out_of_memory
from gdbext.grammar.arguments import Arguments
from gdbext.grammar.catalogue import SETTINGS, default_settings, find_command
from gdbext.grammar.exchange import Question, answer_path, open_answer, read_question, write_trailer
from gdbext.progress import checked
from gdbext.render import printing
from gdbext.report import Report, rendered
from gdbext.session import Session
from gdbext.starting import dependencies
from gdbext.starting.failures import InternalError, find_limit, put

if TYPE_CHECKING:  # numpy is not at hand yet
    from gdbext.target import Target


def answer(package: str, folder: str, core: str, settings: str) -> None:
    """Answer the question of a folder; the trailer comes last.

    :param package: folder of ``gdbext/__init__.py``.
    :param core: its file, unpacked; "" for none.
    :param settings: that are not as they are by default, as JSON.
    """
    _mount.mount(package)
    dependencies.locate(package)
    question, report = read_question(folder), None
    session = _open(core, question, default_settings(json.loads(settings)))
    with open_answer(folder, question) as stream:
        report, fault = _attempt(session, question, stream)
    if fault is not None:
        with open_answer(folder, question) as stream:
            stream.write(printing.error_text(question, session.known_target, fault))
    write_trailer(folder, printing.make_trailer(report, fault, os.path.getsize(answer_path(folder))))


def _open(core: str, question: Question, settings: Mapping[str, int]) -> Session:
    def read() -> Target:
        if not core:
            raise NoTargetError("there is no process and no core")
        from gdbext.coretarget import read_core_target

        target = read_core_target(core)
        return replace(target, identity=replace(target.identity, core=question.core))

    own = next(str(setting.default) for setting in SETTINGS if setting.name == "shapes-folder")
    return Session(read, settings=settings, shapes_folder=own)


def _attempt(
    session: Session, question: Question, stream: TextIO
) -> Tuple[Optional[Report], Optional[GdbextError]]:
    progress = TerminalProgress()
    session.progress = progress
    try:
        dependencies.load(*dependencies.NEEDED)
        with checked(progress.check):
            return _write(session, question, stream, progress), None
    except NoHeapError as error:
        from gdbext.analysis.missing import explained

        return None, explained(error, session.known_target) if session.known_target else error
    except GdbextError as error:
        return None, error
    except KeyboardInterrupt:
        return None, StoppedError("interrupted")
    except MemoryError:
        return None, out_of_memory()
    except Exception as error:  # noqa: BLE001  a defect of ours: the traceback is shown
        if isinstance(error, OSError) and (limit := find_limit(error)) is not None:
            return None, limit
        traceback.print_exc(file=sys.stderr)
        return None, InternalError(f"{type(error).__name__}: {error}", "please report the traceback")
    finally:
        progress.clear()


def _write(session: Session, question: Question, stream: TextIO, progress: TerminalProgress) -> Report:
    spec = find_command(question.command)
    assert spec is not None  # the program has found it
    known = {option.name: option for option in spec.all_options}
    arguments = Arguments(known, question.options, question.expression, question.words)
    module, _, name = spec.run.partition(":")
    report: Report = getattr(importlib.import_module(f"gdbext.commands.{module}"), name)(session, arguments)
    from gdbext.analysis.missing import with_target

    kernels = sys.modules.get("gdbext.kernels")  # only where the answer needed them
    if kernels is not None and (remark := kernels.take_remark()):
        print(f"gdbext: {remark}", file=sys.stderr)
    target = session.known_target
    report = report if target is None else with_target(report, target)
    stop = printing.Stop()
    signal.signal(signal.SIGINT, stop.note)
    stop.heed(report)
    progress.clear()
    if question.json:
        pieces = printing.json_pieces(spec, arguments, report, target)
    else:
        limit = printing.find_limit(question, spec, arguments, report)
        pieces = printing.text_pieces(question, arguments, report, limit)
    for piece in pieces:
        put(stream.write, piece)
    put(stream.flush)
    return rendered(report)
