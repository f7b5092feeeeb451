"""Standard output and standard error of the program: characters that they have, and what happens where they fail."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import contextmanager
from typing import BinaryIO, Iterator, TextIO

from gdbext.cli.ending import without_sigpipe
from gdbext.starting.descriptors import fill_standard
from gdbext.wording import encodable, only_ascii, printable


class UnwritableError(Exception):
    """Standard output takes no more.

    :param reason: why, or nothing where whoever read it has enough of it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def open_standard() -> None:
    """Have Python's streams there also where they were closed."""
    fill_standard()
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115  as Python's own
    if sys.stderr is None:
        sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115


@contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Give standard output for bytes.

    :raises UnwritableError: when it does not take them.
    """
    try:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.flush()
    except OSError as error:
        raise UnwritableError("" if isinstance(error, BrokenPipeError) else error.strerror or str(error)) from None


def put(text: str) -> None:
    """Write text to standard output, in characters that the user's locale has.

    :raises UnwritableError: when it does not take them.
    """
    with standard_output() as out:
        charset = _charset(sys.stdout)
        out.write(encodable(text, charset).encode(charset))


def tell(line: str) -> None:
    """Say something to the user, beside the answer, which counts where standard error takes nothing."""
    try:
        with without_sigpipe():
            print(encodable(printable(line, "\t"), _charset(sys.stderr)), file=sys.stderr)
    except OSError:
        drop(sys.stderr)


def tell_traceback() -> None:
    """Show the traceback of the exception that is handled."""
    for line in traceback.format_exc().split("\n")[:-1]:
        tell(line)


def drop(stream: TextIO) -> None:
    """Have what a stream still holds, and all that is written to it from now on, go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _charset(stream: TextIO) -> str:
    return "ascii" if only_ascii() else stream.encoding
