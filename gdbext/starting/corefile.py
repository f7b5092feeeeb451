"""Files that the user names: opened, and said what is wrong with them in the words of the command line."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import BinaryIO, Iterator, Optional

from gdbext.errors import BadCoreError
from gdbext.memory.corefile import unreadable
from gdbext.memory.elf.corefacts import CoreFacts, read_facts
from gdbext.memory.elf.elffile import ET_CORE, MAGIC, find_file_build_id, find_header
from gdbext.memory.hostfiles import open_unless_special
from gdbext.starting.failures import NoPermissionError, find_limit


def read_core(path: str) -> CoreFacts:
    """Return what the core at ``path`` says of its files.

    :raises BadCoreError: when there is no such file, or it is not a core, or gdb would not open it as one.
    :raises NoPermissionError: when it may not be read.
    """
    with open_binary(path) as file:
        head = file.read(64)
    if head and head[:4] != MAGIC:
        raise BadCoreError(f"{path} is not a core", "the kernel and gcore write cores, as ELF files")
    header = find_header(head)
    if header is not None and header.type != ET_CORE:
        raise BadCoreError(f"{path} is an ELF file but not a core", "an executable is named with --exe")
    facts = read_facts(path)
    if facts.notes_end > facts.size:  # gcore writes the notes last, and a cut takes them first
        raise BadCoreError(
            f"{path} is truncated: {facts.end - facts.size} of {facts.end} bytes are missing, and with them the "
            "notes, without which gdb does not open a core",
            "take the core again, with room on the disk",
        )
    if facts.pid == -1 and 0 in facts.lwps:  # of which gdb makes minus_one_ptid, which stands for all threads
        raise BadCoreError(
            f"{path} is damaged: its notes are of process -1 and thread 0, and gdb aborts on that",
            "take the core again",
        )
    return facts


def read_build_id(path: str) -> Optional[str]:
    """Return the build-id of an ELF file, hex, or None when it has none.

    :raises BadCoreError: when there is no such file, or it is not an ELF file.
    :raises NoPermissionError: when it may not be read.
    """
    with reading(path), open_binary(path) as file:
        if find_header(file.read(64)) is None:
            raise BadCoreError(f"{path} is not an ELF file")

        def read(offset: int, size: int) -> bytes:
            return os.pread(file.fileno(), size, offset) if offset < 1 << 62 else b""

        return find_file_build_id(read)


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Have what the kernel says of a file that cannot be read be said of it, and not of the work folder.

    :raises BadCoreError: when it cannot be read.
    """
    try:
        yield
    except OSError as error:
        if (limit := find_limit(error)) is not None:
            raise limit from None
        raise unreadable(path, error) from None


def open_binary(path: str) -> BinaryIO:
    """Open a regular file to read; errors as :func:`read_build_id`."""
    try:
        descriptor = open_unless_special(path)
    except PermissionError:
        raise NoPermissionError(f"{path} may not be read", "run as its owner or as root") from None
    except (OSError, ValueError) as error:
        reason = f"cannot be opened: {getattr(error, 'strerror', error)}" if os.path.exists(path) else "does not exist"
        raise BadCoreError(f"{path} {reason}") from None
    if descriptor is None:
        raise BadCoreError(f"{path} is not a file")
    return open(descriptor, "rb")
