"""Text as gdb can write it: gdb encodes it in its host charset, and fails where that has no such character.

In an ASCII locale (``LC_ALL=C``) one such character in a help text would leave its command and all after it out.
"""

from __future__ import annotations

import re

import gdb

from gdbext.wording import encodable, printable


def writable(text: str) -> str:
    """Return the text; what gdb's host charset has no character for is replaced, or written as an escape."""
    return text if text.isascii() else encodable(text, _host_charset())


def warn(line: str) -> None:
    """Write a line to gdb's standard error, whatever a target has put into it."""
    gdb.write(writable(printable(line)) + "\n", gdb.STDERR)


def _host_charset() -> str:
    """Return what gdb encodes in; ``gdb.host_charset`` came with gdb 12."""
    if hasattr(gdb, "host_charset"):
        return str(gdb.host_charset())
    shown = gdb.execute("show host-charset", to_string=True)  # … is "auto; currently UTF-8".
    return str(re.findall(r"[\w.-]+", shown.rstrip('.\n"'))[-1])
