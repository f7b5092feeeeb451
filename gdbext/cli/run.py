"""A command answered by gdb: one run of it for each target, text or JSON and an exit status out."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any, Mapping, Optional, Sequence

from gdbext.cli import answer, ending
from gdbext.cli.gdbrun import GdbOutcome, run_gdb
from gdbext.cli.job import for_copy, for_gdb, make_job, unpacked_path
from gdbext.cli.options import Options
from gdbext.cli.output import Output
from gdbext.cli.streams import tell
from gdbext.cli.workfolder import is_full, work_folder
from gdbext.errors import GdbextError, TooLargeError, out_of_memory
from gdbext.grammar.arguments import refuse_input
from gdbext.grammar.exchange import (
    SAMPLE_START,
    Copy,
    Question,
    Trailer,
    answer_path,
    find_trailer,
    is_recording,
    write_question,
)
from gdbext.report import Status
from gdbext.starting.failures import GdbFailedError, TimeOutError, find_limit
from gdbext.starting.gdbjob import GdbJob, has_packages
from gdbext.starting.process import is_stopped, wake
from gdbext.wording import only_ascii, unicode_text

_INTERVAL = 1.0  # seconds between two samples
_ROOM = "TMPDIR names the place for it"
_WIDTH = 100  # of lines where there is no terminal

# Statuses from the one that beats all others, for several cores.
_WORST = (Status.FAILED, Status.FINDINGS, Status.PARTIAL, Status.CLEAN)


def answer_all(options: Options) -> int:
    """Answer a command, for several cores one after the other; return the exit status, of several the worst."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # gdb's too
    # A gdb that crashes would put its own core where we are: over the one that it was given, if both are named core.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with closing(Output(options)) as output:
        if len(options.cores) < 2 or (options.spec is not None and options.spec.several > 0):
            return _answer(options, output)[0]
        return _answer_each(options, output)


def _answer_each(options: Options, output: Output) -> int:
    statuses = []
    for number, core in enumerate(options.cores, 1):
        output.begin(core)
        status, interrupted = _answer(replace(options, cores=(core,)), output)
        statuses.append(status)
        if interrupted and number < len(options.cores):
            tell(f"gdbext: {options.name}: stopped before the last {len(options.cores) - number} of the cores")
            return int(Status.FAILED)
    return min(statuses, key=_WORST.index)


def _answer(options: Options, output: Output) -> tuple[int, bool]:
    """Answer for one target; return the exit status, and whether the user has stopped it."""
    run: Optional[_Run] = None
    try:
        with work_folder() as folder:
            run = (_SeveralRun if _is_compared(options) else _Run)(options, folder, output)
            return run.run(), run.interrupted
    except GdbextError as error:
        return output.fail(options, error), run is not None and run.interrupted
    except MemoryError:
        return output.fail(options, out_of_memory()), False
    except OSError as error:
        if output.writing:
            raise
        full = GdbFailedError(f"no room to work in: {error}", _ROOM)
        return output.fail(options, find_limit(error) or full), False
    except KeyboardInterrupt:
        if output.writing:
            tell(f"gdbext: {options.name}: stopped while the answer was written: it may be cut short")
            return int(Status.FAILED), True
        return output.fail(options, TimeOutError("stopped before there was an answer")), True


class _Run:
    """One command over one target.

    :param folder: a directory of its own, removed afterwards by the caller.
    """

    def __init__(self, options: Options, folder: str, output: Output) -> None:
        self.options = options
        self.folder = folder
        self.output = output
        self.interrupted = False  # by the user
        self.given: Mapping[str, Any] = {}  # besides the user's options
        self._set_deadline()

    def _set_deadline(self) -> None:
        timeout = self.options.timeout
        self.deadline = time.monotonic() + timeout if timeout else None

    def run(self) -> int:
        """Answer; return the exit status.

        :raises GdbextError: when there is no answer.
        """
        self.output.open(self.deadline)  # found out now and not after an hour of gdb
        job = make_job(self.options, self.folder, self.deadline)
        refuse_input("--json", self.options.json, job.exe, "executable")
        self._sample_before(job)
        outcome, trailer, folder = self._answer(job, self.options.json is not None)
        if trailer.error is not None:
            self._fail(outcome, trailer.error)
        self.output.copy(answer_path(folder))
        if outcome.stopped and not trailer.complete:
            tell(f"gdbext: {self.options.name}: stopped; the answer holds what there was until then")
        return trailer.status

    def _answer(self, job: GdbJob, as_json: bool) -> tuple[GdbOutcome, Trailer, str]:
        """Ask gdb; return what came of it, and the folder that has the answer.

        :raises GdbextError: when there is none.
        """
        folder = self.folder
        outcome, trailer = self._ask(job, folder, as_json)
        if job.alone and not outcome.stopped and not outcome.shrank and _is_for_gdb(trailer):
            folder = os.path.join(folder, "gdb")
            os.mkdir(folder)
            outcome, trailer = self._ask(for_gdb(job, folder), folder, as_json)
        self.interrupted = outcome.stopped == "interrupted"
        if trailer is None and is_full(self.folder):  # gdb could not even say so
            raise GdbFailedError(f"no room to work in: {os.path.dirname(self.folder)} is full", _ROOM)
        if trailer is None:
            fault = answer.explain(self.options, outcome)
            self._tell([line for line in outcome.diagnostics if not fault.message.endswith(line)])  # it says the last
            raise fault
        self._tell(outcome.diagnostics)
        return outcome, trailer, folder

    def _tell(self, lines: Sequence[str]) -> None:
        for line in lines:
            tell(line.replace(unpacked_path(self.folder), str(self.options.core)))  # as the user has named it

    def _fail(self, outcome: GdbOutcome, error: Mapping[str, Any]) -> None:
        if (refusal := answer.find_refusal(self.options, outcome, error)) is not None:
            raise refusal
        tell(f"gdbext: {self.options.name}: {answer.error_of(error)}")

    def _ask(self, job: GdbJob, folder: str, as_json: bool) -> tuple[GdbOutcome, Optional[Trailer]]:
        """Ask gdb, whose answer is then in the folder, whole if there is a trailer."""
        with ExitStack() as stack:
            copied = self._copy(stack, folder)
            question = self._question(as_json, None if copied is None else copied[1].held_seconds)
            write_question(folder, question)
            if copied is not None:
                job = for_copy(job, folder, copied[0], question.pid)
            elif question.pid is not None:
                stack.enter_context(ending.owned(partial(_find_stoppable, question.pid), partial(_wake, folder)))
            held = question.pid if copied is None else None
            return run_gdb(job, folder, self.deadline, held), find_trailer(folder)
        raise AssertionError  # the stack swallows nothing

    def _copy(self, stack: ExitStack, folder: str) -> Optional[tuple[int, Copy]]:
        """Have a copy of the process for as long as the stack is open; None where there is none to be had.

        :return: the descriptor of its file, and what came of it.
        :raises GdbextError: nor can the process be examined itself.
        """
        options = self.options
        if options.pid is None or not options.needs_target:
            return None
        why = _find_hindrance(options)
        if why is None:
            from gdbext.cli.copying import copy_process, room  # cores need none of it

            descriptor = stack.enter_context(room())
            wishes = {"swapped": options.swapped, "max_pause": options.max_pause}
            try:
                return descriptor, copy_process(options.pid, folder, descriptor, wishes, self.deadline)
            except GdbextError as error:
                if error.kind != TooLargeError.kind:
                    raise
                why = error.message
        tell(f"gdbext: {why}: process {options.pid} is examined itself, and stands still until that is done")
        return None

    def _question(self, as_json: bool, copied: Optional[float]) -> Question:
        options = self.options
        return Question(
            command=options.name,
            options={**options.arguments.given, **self.given},
            expression=options.arguments.expression,
            words=options.arguments.words,
            json=as_json,
            core=unicode_text(options.core) if options.core and options.needs_target else None,
            pid=options.pid if options.needs_target else None,
            copied=copied,
            width=shutil.get_terminal_size((_WIDTH, 24)).columns,
            color=wants_color(options.color),
            plain=only_ascii(),
        )

    def _sample_before(self, job: GdbJob) -> None:
        """Take all samples but the last, each compared with the one before.

        :raises GdbextError: when one of them gives no answer.
        """
        interval = _INTERVAL if self.options.interval is None else self.options.interval
        for number in range(1, self.options.samples or 1):
            folder = os.path.join(self.folder, f"sample-{number}")
            os.mkdir(folder)
            outcome, trailer = self._ask(job, folder, True)
            if trailer is None or outcome.stopped:
                raise answer.explain(self.options, outcome)
            if (error := trailer.error) is not None:
                raise answer.find_refusal(self.options, outcome, error) or answer.error_of(error)
            self.given = {"compare": answer_path(folder)}
            time.sleep(interval)


def _find_hindrance(options: Options) -> Optional[str]:
    """Return why no copy is made, or None."""
    if options.in_place:
        return "--in-place"
    return None if has_packages() else "this Python has no numpy, so there is no copy"


class _SeveralRun(_Run):
    """One command over several targets at once: a sample of each is taken, one after the other, the last is compared.

    In a folder of its own each leaves what the last needs of it; nothing else of it is there any more when the next
    begins.
    """

    def run(self) -> int:
        """Answer; as that of one target.

        :raises GdbextError: when one of them gives no answer.
        """
        self.output.open(self.deadline)
        options, last = self.options, self.options.cores[-1:] if self.options.pid is None else ()
        kept = [self._take(options, core) for core in options.cores[: len(options.cores) - len(last)]]
        self.options = replace(options, cores=last)
        self._sample(kept)
        if last and _is_sample(last[0]):
            kept, self.options = [*kept, (last[0], None)], replace(options, cores=())
        earlier, held = zip(*kept)
        self.given = {"earlier": earlier, "held": held, "sampled": not self.options.needs_target}
        self._set_deadline()
        return super().run()

    def _sample(self, kept: "list[tuple[str, Optional[float]]]") -> None:
        """Take all samples of a process but the last; of what there is when the user stops it, the last is the last."""
        options = self.options
        try:
            for _ in range(1, options.times or 1):
                kept.append(self._keep(options))
                time.sleep(_INTERVAL if options.every is None else options.every)
        except KeyboardInterrupt:
            if len(kept) < 2:
                raise
            tell(f"gdbext: {options.name}: stopped; the answer is of the {len(kept)} samples until then")
            self.options = replace(options, pid=None)

    def _take(self, options: Options, core: str) -> tuple[str, Optional[float]]:
        if _is_sample(core):
            return core, None
        try:
            return self._keep(replace(options, cores=(core,), pid=None))
        except GdbextError as error:
            if core not in error.message:
                error.message = f"{core}: {error.message}"
            raise

    def _keep(self, options: Options) -> tuple[str, Optional[float]]:
        """Have a sample of one target kept in a folder; return its name, and for how long a process stood still."""
        folder, kept = (tempfile.mkdtemp(prefix=what, dir=self.folder) for what in ("run-", "kept-"))
        run = _Run(options, folder, self.output)
        run.given = {"keep": kept}
        try:
            outcome, trailer, answered = run._answer(make_job(options, folder, run.deadline), True)
        finally:
            self.interrupted = run.interrupted
        if (error := trailer.error) is not None:
            raise answer.find_refusal(options, outcome, error) or answer.error_of(error)
        if run.interrupted:
            raise KeyboardInterrupt
        with open(answer_path(answered), "rb") as file:
            held = json.load(file)["held_seconds"]
        shutil.rmtree(folder)
        return kept, held


def _is_compared(options: Options) -> bool:
    """Whether samples of several targets, or moments of one, are compared."""
    if options.spec is None or not options.spec.several:
        return False
    return options.moments > 1 or any(map(_is_sample, options.cores))


def _is_sample(path: str) -> bool:
    """Whether a file is one with a sample, or a folder a recording, and no core."""
    if is_recording(path):
        return True
    if not os.path.isfile(path):  # reading a FIFO would wait for its writer
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(SAMPLE_START)) == SAMPLE_START.encode()
    except OSError:
        return False  # what is wrong with it is said where it is opened


def _find_stoppable(pid: Optional[int]) -> Optional[int]:
    """Return a process that runs, None where there is none or it is stopped already."""
    return None if pid is None or is_stopped(pid) else pid


def _wake(folder: str, pid: Optional[int]) -> None:
    if pid is not None and _may_be_left_stopped(find_trailer(folder)):
        wake(pid)


def _may_be_left_stopped(trailer: Optional[Trailer]) -> bool:
    """Whether gdb has ended without letting go of its process as it should: it died, or attached in part."""
    return trailer is None or (trailer.error is not None and trailer.error["kind"] == "debugger")


def _is_for_gdb(trailer: Optional[Trailer]) -> bool:
    """Whether Python by itself did not come to an answer: it was ended, or has not what it needs."""
    return trailer is None or (trailer.error is not None and trailer.error["kind"] == "dependency")


def wants_color(when: str) -> bool:
    """Whether text is coloured.

    :param when: ``auto``, ``always`` or ``never``.
    """
    if when != "auto":
        return when == "always"
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout is not None and sys.stdout.isatty() and not plain
