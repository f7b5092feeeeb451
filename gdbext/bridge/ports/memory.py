"""Target memory by gdb's own reads: for gdbserver, rr, vgdb and other remote targets."""

from __future__ import annotations

import re
import tempfile
from typing import Iterator, Sequence

import gdb

from gdbext.bridge.decoded import ask
from gdbext.errors import FaultError
from gdbext.memory import Buffer, Region

# One packet exchange moves some 16 KiB; a larger piece only delays Ctrl-C.
PIECE = 1 << 20

_MAPPING = re.compile(
    r"^[ \t]*(?P<start>0x[0-9a-f]+)[ \t]+(?P<end>0x[0-9a-f]+)[ \t]+0x[0-9a-f]+[ \t]+(?P<offset>0x[0-9a-f]+)"
    r"(?:[ \t]+(?P<permissions>[r-][w-][x-][ps]?))?(?:[ \t]+(?P<name>\S.*?))?[ \t]*$",
    re.MULTILINE,
)
_PROC_LINE = re.compile(
    r"^(?P<start>[0-9a-f]+)-(?P<end>[0-9a-f]+) (?P<permissions>\S{4}) (?P<offset>[0-9a-f]+) \S+ \d+[ ]*"
    r"(?P<name>.*)$",
    re.MULTILINE,
)
# What the kernel maps for itself and no debugger can read.
_UNREADABLE = ("[vvar]", "[vvar_vclock]", "[vsyscall]")


class GdbMemory:
    """The selected inferior's memory, read by gdb.

    :param regions: its mappings.
    """

    def __init__(self, regions: Sequence[Region]) -> None:
        self._regions = regions
        self._inferior = gdb.selected_inferior()

    def read(self, address: int, size: int) -> Buffer:
        """Return exactly ``size`` bytes.

        :raises FaultError: when any of them cannot be read.
        """
        if size < 0 or address < 0:
            raise FaultError(address, size)
        if size <= PIECE:
            return self._read_piece(address, size)
        return b"".join(
            self._read_piece(at, min(PIECE, address + size - at))
            for at in range(address, address + size, PIECE)
        )

    def regions(self) -> Sequence[Region]:
        """Return the mappings, sorted."""
        return self._regions

    def _read_piece(self, address: int, size: int) -> Buffer:
        if not size:
            return b""
        try:
            return bytes(self._inferior.read_memory(address, size))
        except (gdb.MemoryError, OverflowError):
            raise FaultError(address, size) from None


def read_regions(pid: int) -> Sequence[Region]:
    """Return the inferior's mappings as gdb tells them; empty when the target cannot say.

    gdb before 12 leaves out the permissions; then the target is asked for its ``/proc`` file.
    """
    listed = list(_parse(_MAPPING, _ask("info proc mappings"), 0))
    if listed and all(region.permissions == "???" for region in listed):
        listed = list(_parse(_PROC_LINE, _fetch(f"/proc/{pid}/maps"), 16)) or listed
    return sorted(listed, key=lambda region: region.start)


def _parse(pattern: "re.Pattern[str]", text: str, base: int) -> Iterator[Region]:
    for match in pattern.finditer(text):
        name = (match["name"] or "").strip()
        permissions = (match["permissions"] or "???")[:3]
        start, end, offset = (int(match[key], base) for key in ("start", "end", "offset"))
        source = "absent" if name in _UNREADABLE else "memory"
        if start < end:
            yield Region(start, end, permissions, name, offset, source)


def _ask(command: str) -> str:
    try:
        return ask(command)
    except gdb.error:  # the target has no such thing
        return ""


def _fetch(path: str) -> str:
    """Return a file of the remote machine, or "" when it cannot be had."""
    with tempfile.TemporaryFile("r+", encoding="utf-8", errors="surrogateescape") as copy:  # nothing of it can be left
        _ask(f"remote get {path} /proc/self/fd/{copy.fileno()}")
        return copy.read()
