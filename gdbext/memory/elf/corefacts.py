"""What a core says of the files it is of: what must be known before anybody opens them. Without numpy.

A core names its executable in NT_FILE, and holds its build-id when the page with the ELF header was dumped (bit 4 of
the kernel's ``coredump_filter``, on by default). NT_AUXV's AT_PHDR leads to that page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Sequence

from gdbext.memory.corefile import CoreFile, find_images, read_headers, read_notes, settle_loads
from gdbext.memory.elf.corenotes import AT_PHDR
from gdbext.memory.elf.elffile import PT_NOTE, find_image
from gdbext.memory.pieces import PieceMemory


@dataclass(frozen=True)
class CoreFacts:
    """None and empty where the core does not say.

    :param exe: path of the executable as the target saw it.
    :param build_id: the executable's, hex, from the core's own memory.
    :param build_ids: of all mapped files whose first page is in the core, by path.
    :param files: paths of all mapped files.
    :param pid: of the process.
    :param lwps: of its threads.
    :param size: of the file, bytes.
    :param notes_end: where in the file its last note ends; beyond ``size`` where the file was cut.
    :param end: where the file should end.
    """

    exe: Optional[str]
    build_id: Optional[str]
    build_ids: Mapping[str, str]
    files: Sequence[str]
    pid: Optional[int]
    lwps: Sequence[int]
    size: int
    notes_end: int
    end: int


def read_facts(path: str) -> CoreFacts:
    """Return what the core at ``path`` says of its files.

    :raises BadCoreError: when it is not a core that can be read.
    """
    file = CoreFile(path, mmap=False)
    header, segments = read_headers(file)
    notes, _ = read_notes(file, header, segments)
    loads, _ = settle_loads(segments, header)
    pieces = [
        (load.address, load.address + min(load.filesz, file.size - load.offset), file.data, load.offset - load.address)
        for load in loads
        if load.filesz and load.offset < file.size
    ]
    memory, page = PieceMemory(pieces, ()), notes.page_size or 4096
    images = find_images(notes.files, memory.read, page)
    table = notes.auxv.get(AT_PHDR, 0)
    main = next((image for _, image in images if image.base <= table < image.end), None)
    main = main or find_image(memory.read, table - table % page, page)
    ends = [segment.offset + segment.filesz for segment in segments]
    return CoreFacts(
        exe=next((mapped.path for mapped in notes.files if table and mapped.start <= table < mapped.end), None),
        build_id=main.build_id if main and table else None,
        build_ids={name: image.build_id for name, image in images if image.build_id},
        files=list(dict.fromkeys(mapped.path for mapped in notes.files)),
        pid=notes.process.pid if notes.process else None,
        lwps=[thread.lwp for thread in notes.threads],
        size=file.size,
        notes_end=max((end for end, one in zip(ends, segments) if one.type == PT_NOTE), default=0),
        end=max(ends),
    )
