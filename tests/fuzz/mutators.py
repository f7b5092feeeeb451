"""The mutators: each does one kind of damage, at a place and with a value that it draws."""

from __future__ import annotations

from typing import Callable, Mapping

from tests.fuzz.draw import Draw
from tests.fuzz.image import Header, Note

Mutator = Callable[[Draw], None]
NT_PRSTATUS, NT_AUXV, NT_FILE, NT_SIGINFO = 1, 6, 0x46494C45, 0x53494749
# Where the members of a program header are, by the bytes of a word.
_MEMBERS = {
    8: {"kind": 0, "flags": 4, "offset": 8, "address": 16, "filesz": 32, "memsz": 40},
    4: {"kind": 0, "offset": 4, "address": 8, "filesz": 16, "memsz": 20, "flags": 24},
}


def nothing(draw: Draw) -> None:
    """No damage: the answers must be those of the undamaged core."""
    draw.mutation.harmless = True


# ---- the file's own tables ----


def _member(draw: Draw, header: Header, name: str) -> tuple[int, int]:
    """Return file offset and size of a program header's member."""
    word = draw.image.word
    return header.at + _MEMBERS[word][name], 4 if name in ("kind", "flags") else word


def program_header(draw: Draw) -> None:
    """A field of a program header: memory past 2^64, outside the file, overlapping."""
    header = draw.pick(draw.image.headers)
    name = draw.pick(("kind", "flags", "offset", "address", "filesz", "memsz"))
    at, size = _member(draw, header, name)
    others = [getattr(one, name) for one in draw.image.headers]
    draw.put(at, draw.hostile(getattr(header, name), 0, others), size, f"p_{name}")


def program_headers(draw: Draw) -> None:
    """Several of them."""
    for _ in range(draw.random.randint(2, 12)):
        program_header(draw)


def file_header(draw: Draw) -> None:
    """A byte of the ELF header, or its counts and offsets."""
    at, size = draw.pick(((4, 1), (5, 1), (16, 2), (18, 2), (32, 8), (40, 8), (52, 2), (54, 2), (56, 2), (60, 2)))
    if draw.image.word == 4 and at >= 32:
        at, size = draw.pick(((28, 4), (32, 4), (40, 2), (42, 2), (44, 2), (48, 2)))
    old = int.from_bytes(draw.image.data[at : at + size], "little")
    draw.put(at, draw.hostile(old), size, "ELF header")


def many_headers(draw: Draw) -> None:
    """PN_XNUM: their number is in section header 0, at the file's end, or it is said to be somewhere else."""
    image, wide = draw.image, draw.image.word == 8
    draw.put(56 if wide else 44, 0xFFFF, 2, "e_phnum")
    where = draw.pick((image.size, draw.random.randrange(image.size)))
    draw.put(40 if wide else 32, where, image.word, "e_shoff")
    if where == image.size:
        count = draw.pick((len(image.headers), draw.hostile(len(image.headers))))
        draw.patch(where, bytes(64), "section header")
        draw.put(where + (44 if wide else 28), count, 4, "sh_info")


def _holds_chunks(draw: Draw, header: Header) -> bool:
    return any(0 <= one.address - header.address < header.filesz for one in draw.places.chunks)


def missing_memory(draw: Draw) -> None:
    """A writable segment says that its memory was not written into the core."""
    header = draw.pick([one for one in draw.image.loads if one.flags & 2 and one.filesz > 4096])
    draw.put(_member(draw, header, "filesz")[0], 0, draw.image.word, "p_filesz")
    draw.mutation.lost = _holds_chunks(draw, header)


def missing_segment(draw: Draw) -> None:
    """A segment is gone, and with it what says that it was there."""
    header = draw.pick(draw.image.loads)
    draw.put(header.at, 0, 4, "p_type")
    draw.mutation.lost = _holds_chunks(draw, header)


def cut(draw: Draw) -> None:
    """The file ends early."""
    last = max(one.offset + one.filesz for one in draw.image.loads if one.flags & 2)
    draw.mutation.size = draw.random.choice((draw.random.randrange(1, last), draw.random.randrange(last // 2, last)))
    draw.mutation.what = f"cut after {draw.mutation.size} bytes"
    draw.mutation.lost = bool(draw.places.chunks)


# ---- notes ----


def _note(draw: Draw, *kinds: int) -> Note:
    return draw.pick([one for one in draw.image.notes if one.kind in kinds and one.owner.startswith(b"CORE")])


def note_header(draw: Draw) -> None:
    """Sizes and type of a note."""
    note = draw.pick(draw.image.notes)
    at = note.at + 4 * draw.random.randrange(3)
    draw.put(at, draw.hostile(draw.image.unpack("I", at)[0]), 4, f"header of note {note.kind:#x}")


def note_words(draw: Draw) -> None:
    """Words of prstatus, auxv, NT_FILE or siginfo: registers, tids, counts, offsets."""
    note = _note(draw, draw.pick((NT_PRSTATUS, NT_AUXV, NT_FILE, NT_SIGINFO)))
    for _ in range(draw.random.randint(1, 4)):
        word = draw.image.word
        at = note.data_at + word * draw.random.randrange(max(min(note.size, 1024) // word, 1))
        draw.put(at, draw.hostile(draw.image.unpack("W", at)[0]), word, f"word of note {note.kind:#x}")


def thread_ids(draw: Draw) -> None:
    """Threads of equal, negative or huge ids."""
    for note in draw.image.notes:
        if note.kind == NT_PRSTATUS and note.owner.startswith(b"CORE") and draw.random.random() < 0.7:
            at = note.data_at + (32 if draw.image.word == 8 else 24)
            draw.put(at, draw.pick((0, -1, 1, 7, 0x7FFFFFFF, draw.random.getrandbits(32))), 4, "tid")


def file_names(draw: Draw) -> None:
    """Paths of NT_FILE: bytes for a terminal, no end, other files."""
    note = _note(draw, NT_FILE)
    (count,) = draw.image.unpack("W", note.data_at)
    names_at = note.data_at + (2 + 3 * count) * draw.image.word
    at = draw.random.randrange(names_at, note.data_at + note.size - 16)
    paths = (b"\x1b[31m\x07\x9b2J", b"\xff\xfe\xc3(", b"/etc/passwd\0", b"/dev/stdin\0", b"\0\0\0\0", b"../../" * 2)
    draw.patch(at, draw.pick((*paths, "\u202e\u2066\u200b".encode())), "path")


def process_name(draw: Draw) -> None:
    """The command line of NT_PRPSINFO."""
    note = _note(draw, 3)
    draw.patch(note.data_at + note.size - 90, draw.random.randbytes(24) + b"\x1b]0;x\x07", "psinfo")


# ---- memory, wherever it lies ----


def flipped_bytes(draw: Draw) -> None:
    """Some bytes of the whole file."""
    for _ in range(draw.random.randint(1, 200)):
        at = draw.random.randrange(draw.image.size)
        draw.put(at, draw.random.getrandbits(8), 1, "byte")


def flipped_words(draw: Draw) -> None:
    """Some words of writable memory."""
    loads = [one for one in draw.image.loads if one.flags & 2]
    for _ in range(draw.random.randint(1, 60)):
        load = draw.pick(loads)
        draw.spoil(load.address + draw.image.word * draw.random.randrange(load.filesz // draw.image.word), "word")


def page(draw: Draw) -> None:
    """A page of writable memory: zeros, ones, or text."""
    load = draw.pick([one for one in draw.image.loads if one.flags & 2])
    at = load.offset + 4096 * draw.random.randrange(max(load.filesz // 4096, 1))
    data = draw.pick((b"\0", b"\xff", b"AAAAAAA\0", b"\x1b[2J\x9b\xe2\x80\xae."))
    draw.patch(at, (data * 4096)[: min(4096, draw.image.size - at)], f"page at file offset {at:#x}")


def swapped_pages(draw: Draw) -> None:
    """The contents of two pages change places: every pointer to them is wrong."""
    load = draw.pick([one for one in draw.image.loads if one.flags & 2 and one.filesz >= 8192])
    first, second = (load.offset + 4096 * draw.random.randrange(load.filesz // 4096) for _ in range(2))
    data = draw.image.data
    draw.patch(first, data[second : second + 4096], "page")
    draw.patch(second, data[first : first + 4096], "page")


def module_header(draw: Draw) -> None:
    """The ELF header, program headers or dynamic section of a file that is mapped in the core."""
    module = draw.pick(draw.places.modules)
    for _ in range(draw.random.randint(1, 6)):
        at = module.base + draw.random.randrange(0, draw.random.choice((0x400, 0x1000)))
        draw.spoil(at & -4, "header of a module", size=4)


def module_data(draw: Draw) -> None:
    """Writable memory of a module: its .dynamic, its GOT, vtables, link_map and r_debug of the loader."""
    module = draw.pick(draw.places.modules)
    inside = [one for one in draw.image.loads if one.flags & 2 and module.base <= one.address < module.end]
    load = draw.pick(inside)
    for _ in range(draw.random.randint(1, 40)):
        draw.spoil(load.address + draw.image.word * draw.random.randrange(load.filesz // draw.image.word), "data")


# ---- structures ----


def _of_struct(name: str) -> Mutator:
    def spoil(draw: Draw) -> None:
        known = draw.places.structs.get(name, ())
        others = [address for address, _ in known]
        for _ in range(draw.random.choice((1, 1, 1, 2, 8))):
            address, layout = draw.pick(known)
            member = draw.pick(list(layout.members.values()))
            size = min(member.size, 8)
            at = address + member.offset + member.size * draw.random.randrange(member.count or 1)
            draw.spoil(at, f"{name}.{member.name}", others, size)

    spoil.__doc__ = f"Members of a {name}."
    return spoil


def _of_words(name: str) -> Mutator:
    def spoil(draw: Draw) -> None:
        words = [one for kind, words in draw.places.words.items() if kind.startswith(name) for one in words]
        known = [one for one in words if draw.image.find_offset(one, draw.image.word) is not None]
        for _ in range(draw.random.choice((1, 1, 2, 8, 40))):
            draw.spoil(draw.pick(known), name, known)

    spoil.__doc__ = f"Words of a {name}."
    return spoil


def user_data(draw: Draw) -> None:
    """What the program keeps in its own blocks is no business of malloc."""
    for _ in range(draw.random.randint(1, 10)):
        address, usable = draw.pick([one for one in draw.places.blocks if one[1] >= 24])
        at = address + 8 * draw.random.randrange(usable // 8)
        draw.poke(at, draw.random.getrandbits(32), "data", 4)
    draw.mutation.harmless = True


_STRUCTS = ("malloc_state", "heap_info", "malloc_par", "tcache", "arena", "base", "cache", "decay", "bin", "extent",
            "slab", "tsd", "je tcache")  # fmt: skip
_PARTS = ("chunk", "rtree", "arenas table", "global", "cached objects", "stack", "tls", "hash", "list", "lock")

MUTATORS: Mapping[str, Mutator] = {
    **{
        one.__name__: one
        for one in (
            nothing, program_header, program_headers, file_header, many_headers, missing_memory, missing_segment, cut,
            note_header, note_words, thread_ids, file_names, process_name, flipped_bytes, flipped_words, page,
            swapped_pages, module_header, module_data, user_data,
        )
    },
    **{name.replace(" ", "_"): _of_struct(name) for name in _STRUCTS},
    **{name.replace(" ", "_") + "_words": _of_words(name) for name in _PARTS},
}  # fmt: skip
