"""Files that commands write besides their answer: pictures, graphs, folded stacks."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any, Iterable, Optional

from gdbext.errors import UsageError
from gdbext.files import replacing
from gdbext.grammar.arguments import refuse_input

_DRAWING = 60  # seconds that graphviz may take


def find_output(session: Any, arguments: Any, option: str) -> Optional[str]:
    """Return the file that an option names, or None.

    :raises UsageError: it is the core, or the executable.
    """
    path = os.path.expanduser(arguments.value(option) or "")
    if path:
        refuse_input(f"--{option}", path, session.target.identity.core, "core")
        refuse_input(f"--{option}", path, session.target.identity.exe, "executable")
    return path or None


def write(path: str, pieces: Iterable[str]) -> int:
    """Write a file, which is whole or as before; return its bytes.

    :raises UsageError: it cannot be written.
    """
    written = 0
    try:
        with replacing(path) as stream:
            for piece in pieces:
                written += stream.write(piece.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", "name another file") from None
    return written


def draw(path: str, lines: Iterable[str]) -> None:
    """Write a graph in the DOT language; where the file's name ends in .svg, its picture.

    :raises UsageError: it cannot be written, or drawn.
    """
    if not path.lower().endswith(".svg"):
        write(path, lines)
        return
    program = shutil.which("dot")
    if program is None:
        hint = "install graphviz, or name a file that ends in .dot for the graph as text"
        raise UsageError(f"cannot draw {path}: there is no program dot here", hint)
    try:
        made = subprocess.run(
            [program, "-Tsvg"], input="".join(lines), capture_output=True, encoding="utf-8", timeout=_DRAWING
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"cannot draw {path}: {error}", "name a file that ends in .dot") from None
    if made.returncode:
        reason = (made.stderr.strip().splitlines() or [f"dot ended with {made.returncode}"])[-1]
        raise UsageError(f"cannot draw {path}: {reason}", "name a file that ends in .dot")
    write(path, [made.stdout])
