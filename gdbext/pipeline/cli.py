"""The ``gdbext`` program: options in, one run of gdb, text or JSON and an exit status out."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import replace
from typing import Any, BinaryIO, Optional, Sequence

from gdbext import __version__
from gdbext.errors import GdbextError, NoTargetError, UsageError
from gdbext.pipeline import answer
from gdbext.pipeline.corefile import read_core
from gdbext.pipeline.executable import choose_exe
from gdbext.pipeline.failures import TimeOutError
from gdbext.pipeline.gdbrun import GdbJob, GdbOutcome, outputs, run_gdb
from gdbext.pipeline.options import Options, mark_quoted, parse
from gdbext.pipeline.unpack import find_packing, unpack

_INTERVAL = 1.0  # seconds between two looks

HELP = """\
Usage: gdbext COMMAND... --core CORE [--exe EXE] [OPTIONS]
       gdbext COMMAND... --pid PID [OPTIONS]
       gdbext commands

Run one command of gdbext over a core or a process, in gdb's batch mode.
What is not listed here belongs to the command: gdbext COMMAND... -h shows its
options, gdbext commands lists the commands.

Options:
  --core CORE      the core to look at; also packed as .zst, .lz4, .xz or .gz
  --exe EXE        its executable; otherwise the one that the core names, if
                   that has the same build-id
  --pid PID        the process to look at; it goes on afterwards
  --json[=FILE]    write JSON to standard output or to FILE
  --sysroot DIR    where the libraries of the target's machine are
  --debug-dir DIR  where separate debug info is, instead of gdb's own place
  --gdb PROGRAM    the gdb to use
  --timeout S      seconds after which it is ended (default 600; 0 is for ever)
  --swapped        also read what is swapped out of --pid, which brings it back
                   into RAM
  --samples N      lockwait with --pid: look N times, and say what is stuck,
                   what is slow, and what moves; the process goes on between
  --interval S     seconds between two looks (default 1)
  -h, --help       show this help
  --version        show the version

Exit status: 0 no finding; 1 findings (triage, lockwait, slabskew, glibc check,
walklist --check); 2 the target could not be analysed: with --json the document
then has "data": null and "error".

Example:
  gdbext triage --core core.1234 --json
"""


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the program.

    :param arguments: its command line without the program's name; None takes ``sys.argv``.
    :return: the exit status.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    signal.signal(signal.SIGTERM, _stop)
    try:
        return _run(words)
    except BrokenPipeError:
        # Whoever read our output has enough of it; keep Python from writing the rest at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return answer.FAILED


def _stop(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _run(words: Sequence[str]) -> int:
    options = Options(command=tuple(words), json=_find_json(words))
    try:
        options = parse(words)
        if options.help or options.version:
            sys.stdout.write(HELP if options.help else f"gdbext {__version__}\n")
            return answer.NO_FINDING
        with tempfile.TemporaryDirectory(prefix="gdbext-") as folder:
            return _Run(options, folder).run()
    except GdbextError as error:
        return _fail(options, error)
    except KeyboardInterrupt:
        return _fail(options, TimeOutError("stopped before there was an answer"))


def _find_json(words: Sequence[str]) -> Optional[str]:
    """Return what the line says about JSON, however wrong the rest of it is."""
    asked = [word for word in words if word == "--json" or word.startswith("--json=")]
    return asked[-1].partition("=")[2] if asked else None


def _fail(options: Options, error: GdbextError) -> int:
    name = f"{options.name}: " if options.name else ""
    _tell(f"gdbext: {name}{error}")
    if options.json is not None:
        _write_text(options.json, answer.error_document(options, error))
    return answer.FAILED


def _tell(line: str) -> None:
    print(line.encode("utf-8", "backslashreplace").decode("utf-8"), file=sys.stderr)


def _write_text(path: str, text: str) -> None:
    if not path:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        _tell(f"gdbext: cannot write {path}: {error.strerror}")


class _Run:
    """One command over one target.

    :param folder: a directory of its own, removed afterwards by the caller.
    """

    def __init__(self, options: Options, folder: str) -> None:
        self.options = options
        self.folder = folder
        self.document = os.path.join(folder, "answer.json")
        self.earlier: Optional[str] = None
        self.deadline = time.monotonic() + options.timeout if options.timeout else None

    def run(self) -> int:
        """Answer; return the exit status.

        :raises GdbextError: when there is no answer.
        """
        self._check_output()
        self._look_before()
        job = self._job()
        outcome = run_gdb(job, self.folder, self.deadline)
        for line in outcome.diagnostics:
            if answer.told_again(line):
                continue
            _tell(self._as_asked(line.encode("utf-8", "replace")).decode("utf-8", "replace"))
        if self.options.wants_help:
            return self._help(job, outcome)
        verdict = answer.read_verdict(self.document)
        if verdict is None or (verdict.failed and outcome.stopped):
            raise answer.explain(self.options, outcome)
        if verdict.failed and (refusal := answer.find_refusal(self.options, outcome)):
            raise refusal
        if self.options.json is not None:
            self._write_document()
        elif not verdict.failed and not self._write_output(job, outcome):
            return answer.FAILED
        if outcome.stopped:
            _tell(f"gdbext: {self.options.name}: stopped; the answer holds what there was until then")
        return verdict.status

    def _check_output(self) -> None:
        # Found out now and not after an hour of gdb.
        if self.options.json:
            folder = os.path.dirname(os.path.abspath(self.options.json))
            if os.path.isdir(self.options.json) or not os.access(folder, os.W_OK):
                raise UsageError(f"cannot write {self.options.json}", "name another file")

    def _look_before(self) -> None:
        """Look as often as asked but once, each time compared with the time before.

        :raises GdbextError: when one of the looks gives no answer.
        """
        interval = _INTERVAL if self.options.interval is None else self.options.interval
        for number in range(1, self.options.samples or 1):
            document = os.path.join(self.folder, f"look-{number}.json")
            asked = f"gx {self.options.name} --json={_gdb_quoted(document)}{self._rest} --limit 0"
            outcome = run_gdb(replace(self._job(), commands=[asked]), self.folder, self.deadline)
            verdict = answer.read_verdict(document)
            if verdict is None or verdict.failed or outcome.stopped:
                raise answer.find_refusal(self.options, outcome) or answer.explain(self.options, outcome)
            self.earlier = document
            time.sleep(interval)

    @property
    def _rest(self) -> str:
        """What follows the command's name, with what it is compared to."""
        compared = f" --compare={_gdb_quoted(self.earlier)}" if self.earlier else ""
        return self._words[len(self.options.name) :] + compared

    @property
    def _words(self) -> str:
        command = self.options.command
        return " ".join(_quoted(word, own) for word, own in zip(command, mark_quoted(command)))

    def _job(self) -> GdbJob:
        options, core, exe = self.options, self.options.core, self.options.exe
        if options.pid is not None and options.needs_target:
            _check_process(options.pid)
        if core is not None and options.needs_target:
            core = self._unpacked(core)
            exe = self._exe(core)
        return GdbJob(
            options.gdb,
            self._commands(),
            core,
            exe,
            options.pid if options.needs_target else None,
            options.sysroot,
            options.debug_dir,
            options.swapped,
        )

    def _unpacked(self, core: str) -> str:
        packing = find_packing(core)
        if packing is None:
            return core
        target = os.path.join(self.folder, "core")
        unpack(core, packing, target, self.deadline)
        return target

    def _exe(self, core: str) -> Optional[str]:
        try:
            choice = choose_exe(read_core(core), self.options.exe, self.options.sysroot)
        except GdbextError as error:
            error.message = error.message.replace(core, str(self.options.core))
            raise
        if choice.remark:
            _tell(f"gdbext: {choice.remark}")
        return choice.exe

    def _commands(self) -> list[str]:
        name = self.options.name
        if self.options.wants_help:
            return [f"gx {self._words}"]
        asked = f"gx {name} --json={_gdb_quoted(self.document)}"
        if self.options.json is not None:
            return [asked + self._rest]
        # The text, and before it the same in short as JSON for the exit status; gdb has the heap by then.
        return [f"{asked} --limit 1{self._rest}", f"gx {name}{self._rest}"]

    def _help(self, job: GdbJob, outcome: GdbOutcome) -> int:
        spans = outputs(os.path.join(self.folder, "stdout"), job.mark)
        if len(spans) < 2 or spans[0][0] == spans[0][1]:
            raise answer.explain(self.options, outcome)
        self._copy_span(spans[0])
        return answer.NO_FINDING

    def _write_output(self, job: GdbJob, outcome: GdbOutcome) -> bool:
        """Write the text as far as there is one; return whether it is whole."""
        spans = outputs(os.path.join(self.folder, "stdout"), job.mark)
        if len(spans) > 1:
            self._copy_span(spans[1])
        if len(spans) > 2:
            return True
        reason = answer.explain(self.options, outcome)
        _tell(f"gdbext: {self.options.name}: the text is cut short: {reason}")
        return False

    def _copy_span(self, span: tuple[int, int]) -> None:
        start, end = span
        with open(os.path.join(self.folder, "stdout"), "rb") as file:
            file.seek(start)
            while start < end:
                data = file.read(min(1 << 20, end - start))
                start += len(data)
                sys.stdout.buffer.write(self._as_asked(data))
        sys.stdout.flush()

    def _as_asked(self, text: bytes) -> bytes:
        """Return the text with the name of the core that was asked for in place of the unpacked one's."""
        if self.options.core is None:
            return text
        return text.replace(os.fsencode(os.path.join(self.folder, "core")), os.fsencode(self.options.core), 1)

    def _write_document(self) -> None:
        if not self.options.json:
            self._copy_document(sys.stdout.buffer)
            sys.stdout.flush()
            return
        try:
            with open(self.options.json, "wb") as out:
                self._copy_document(out)
        except OSError as error:
            raise UsageError(f"cannot write {self.options.json}: {error.strerror}") from None

    def _copy_document(self, out: BinaryIO) -> None:
        # An unpacked core is gone when this is read: the document names the one that was asked for.
        unpacked = json.dumps(os.path.join(self.folder, "core")).encode()
        with open(self.document, "rb") as file:
            head = file.read(1 << 16)
            out.write(head.replace(unpacked, json.dumps(self.options.core).encode(), 1))
            shutil.copyfileobj(file, out, 1 << 20)


def _check_process(pid: int) -> None:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        raise NoTargetError(f"there is no process {pid}", "ps -e lists them") from None
    except PermissionError:
        pass  # gdb says what it may not do


def _quoted(word: str, own: bool) -> str:
    """Return a word of the shell's as gdb should see it: only an option's value needs its quotes back.

    :param own: whether it is a value or argument for itself.
    """
    if own:
        return _gdb_quoted(word) if _needs_quotes(word) else word
    name, equals, value = word.partition("=")
    if word.startswith("--") and equals and _needs_quotes(value):
        return f"{name}={_gdb_quoted(value)}"
    return word


def _needs_quotes(text: str) -> bool:
    return not text or any(char.isspace() or char in "'\"" for char in text)


def _gdb_quoted(text: str) -> str:
    quote = '"' if "'" in text and '"' not in text else "'"
    return quote + text.replace(quote, "\\" + quote) + quote
