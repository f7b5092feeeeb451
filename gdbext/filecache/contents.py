"""What a file holds, as a hash. It is read once: later its inode, size and times say that it is the same."""

from __future__ import annotations

import hashlib
import os
import time
from typing import Any, Optional

from gdbext.filecache.store import Store, key_of
from gdbext.memory.elf.elffile import find_header, read_section_names
from gdbext.memory.hostfiles import open_named, pread

_SETTLED = 2_000_000_000  # ns since the last change, from which on times of the next one differ
_STEP = 4 << 20
_DAY = 86400  # seconds


def find_hash(store: Store, path: str, before: int) -> Optional[str]:
    """Return the SHA-256 of a file's contents, hex.

    None where there is none: it may not be read, was changed meanwhile, or is an ELF file whose debug info is in other
    files in part (.dwo, .gnu_debugaltlink), of which the hash says nothing.

    :param before: ns since the epoch; the file must be the same since then.
    """
    descriptor = open_named(path)
    if descriptor is None:
        return None
    try:
        facts = os.fstat(descriptor)
        key = key_of("contents", *_marks(facts))
        if max(facts.st_mtime_ns, facts.st_ctime_ns) >= before or not facts.st_size:
            return None
        found = store.find(key)
        if not _is_answer(found):
            found = _read(descriptor, facts.st_size)
            if _marks(os.fstat(descriptor)) != _marks(facts):
                return None
            if time.time_ns() - max(facts.st_mtime_ns, facts.st_ctime_ns) > _SETTLED:
                store.keep(key, found)
        return str(found["hash"]) if found["whole"] else None
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)


def note_use(path: str) -> None:
    """Have a file be one that was used now. Not each time: that changes its ctime, by which its contents are known.

    :raises OSError: it is not there.
    """
    facts = os.stat(path)
    if facts.st_atime < time.time() - _DAY:
        os.utime(path, (time.time(), facts.st_mtime))


def _marks(facts: os.stat_result) -> "tuple[int, ...]":
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def _is_answer(found: Any) -> bool:
    if not isinstance(found, dict) or set(found) != {"hash", "whole"}:
        return False
    return isinstance(found["hash"], str) and len(found["hash"]) == 64 and isinstance(found["whole"], bool)


def _read(descriptor: int, size: int) -> Any:
    digest = hashlib.sha256()
    for at in range(0, size, _STEP):  # not mapped: our address space may be limited
        digest.update(os.pread(descriptor, _STEP, at))
    return {"hash": digest.hexdigest(), "whole": _is_whole(descriptor)}


def _is_whole(descriptor: int) -> bool:
    """Whether no debug info of an ELF file is elsewhere: in what dwz has taken out, or -gsplit-dwarf has put aside."""
    header = find_header(pread(descriptor, 0, 64))
    if header is None:
        return True
    names = read_section_names(lambda at, size: pread(descriptor, at, size), header)
    return not {".gnu_debugaltlink", ".debug_addr", ".zdebug_addr"} & set(names)
