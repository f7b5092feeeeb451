"""Where answers go: to standard output, or to the file of ``--json=FILE``."""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import contextmanager
from functools import partial
from operator import methodcaller
from typing import IO, Any, Iterator, Optional

from gdbext.cli.ending import owned
from gdbext.cli.options import Options
from gdbext.cli.streams import put, standard_output, tell
from gdbext.errors import GdbextError, UsageError
from gdbext.files import Addition, NoReaderError, Replacement, find_open
from gdbext.report import Status
from gdbext.version import __version__
from gdbext.wording import printable, unicode_text

_STEP = 1 << 20
_UNSAID, _POLL = 0.5, 0.02  # seconds of waiting before it is said; between two tries


class Output:
    """The answers of one run of the program.

    :param options: with several cores, text has a line above each answer, and JSON is one line for each.
    """

    def __init__(self, options: Options) -> None:
        self.writing = False  # whether what stands on standard output, or has gone into a pipe, is of an answer
        self._path = options.json
        self._several = len(options.cores) > 1
        self._begun = False
        self._held: Optional[int] = None

    def open(self, deadline: Optional[float]) -> None:
        """Check that the file of ``--json=FILE`` can be written. A FIFO's reader is waited for, and then kept.

        :param deadline: in seconds of ``time.monotonic``, or None.
        :raises UsageError: when it cannot.
        """
        if not self._path or self._held is not None:
            return
        try:
            self._held = _find_open(self._path, deadline)
        except OSError as error:
            raise UsageError(f"cannot write {self._path}: {error.strerror}", "name another file") from None

    def close(self) -> None:
        """Let go of a FIFO's reader."""
        if self._held is not None:
            os.close(self._held)

    def begin(self, core: str) -> None:
        """Say of which core the next answer is, where there are several."""
        if self._several and self._path is None:
            put(("\n" if self._begun else "") + f"==> {printable(core)} <==\n")
            self._begun = True
        self.writing = False

    def fail(self, options: Options, error: GdbextError) -> int:
        """Say why there is no answer; return the exit status."""
        name = f"{options.name}: " if options.name else ""
        core = options.core if self._several and len(options.cores) == 1 else None  # not where they are compared
        which = f"{core}: " if core and core not in error.message else ""
        tell(f"gdbext: {name}{which}{error}")
        if self._path is not None and not error.message.startswith(("cannot write", "--json names")):
            self._put(error_document(options, error))
        return int(Status.FAILED)

    def copy(self, path: str) -> None:
        """Write an answer that a file holds.

        :raises UsageError: when the file of ``--json=FILE`` cannot be written.
        :raises UnwritableError: when standard output does not take it.
        """
        self.writing = not self._path or _is_stream(self._path)
        with open(path, "rb") as file:
            if not self._path:
                with standard_output() as out:
                    self._copy(file, out)
                return
            try:
                with self._opened(self._path) as out:
                    self._copy(file, out)
            except OSError as error:
                raise UsageError(f"cannot write {self._path}: {error.strerror}") from None

    def _copy(self, file: IO[bytes], out: IO[bytes]) -> None:
        if self._path is None or not self._several:
            shutil.copyfileobj(file, out, _STEP)
            return
        while data := file.read(_STEP):
            out.write(data.replace(b"\n", b" "))  # between values: inside strings they are escaped
        out.write(b"\n")

    def _put(self, text: str) -> None:
        if not self._path:
            put(text)
            return
        try:
            with self._opened(self._path) as out:
                out.write(text.encode())
        except OSError as error:
            tell(f"gdbext: cannot write {self._path}: {error.strerror}")

    @contextmanager
    def _opened(self, path: str) -> Iterator[IO[bytes]]:
        """Open the file of ``--json=FILE``, which then has an answer more, or is what it was before."""
        with owned(partial(Addition if self._begun else Replacement, path), methodcaller("discard")) as new:
            yield new.stream
            new.commit()
        self._begun = self._several


def _find_open(path: str, deadline: Optional[float]) -> Optional[int]:
    """Do as ``files.find_open``, with patience for who is to read a FIFO."""
    began, said = time.monotonic(), False
    while True:
        try:
            return find_open(path)
        except NoReaderError:
            now = time.monotonic()
            if deadline is not None and now > deadline:
                raise
            if not said and now - began > _UNSAID:
                tell(f"gdbext: nobody reads {path}, which is a FIFO: waiting for whoever is to")
                said = True
        time.sleep(_POLL)


def _is_stream(path: str) -> bool:
    """Whether what was written to a file cannot be taken back."""
    return os.path.exists(path) and not os.path.isfile(path)


def error_document(options: Options, error: GdbextError) -> str:
    """Return the envelope of an error that gdb had no part in."""
    hint = error.hint and unicode_text(error.hint)
    document: dict[str, Any] = {
        "schema": options.schema,
        "tool": {"version": __version__},
        "target": {
            "exe": options.exe and unicode_text(options.exe),
            "build_id": None,
            "pid": options.pid,
            "core": options.core and unicode_text(options.core),
            "time": None,
        },
        "data": None,
        "error": {"kind": error.kind, "message": unicode_text(error.message), "hint": hint},
        "evidence": [],
        "problems": [],
        "held_seconds": None,
        "complete": False,
        "findings": False,
        "status": int(Status.FAILED),
    }
    return json.dumps(document).replace("\x7f", "\\u007f") + "\n"
