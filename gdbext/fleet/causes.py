"""What causes a core has, each with a signature that equal ones share: ``docs/signatures.md`` says which are."""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any, Callable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbext.analysis.crash.death import Death
from gdbext.analysis.leaks.tables import TypeRow as LeakGroupRow
from gdbext.fleet.kinds import CauseRow
from gdbext.process import Identity
from gdbext.report import Finding

VERSION = 1  # of what signatures are made of

_VERSIONED = re.compile(r"-?\d+(\.\d+)+$|-\d+$")
_PLACE = re.compile(r"^.*?:\d+ (?=\S)")  # "main.c:212 "
_OFFSET = re.compile(r"(.+)\+0x[0-9a-f]+")
_SUFFIX = re.compile(r"(\.(part|constprop|isra|cold|lto_priv|llvm)(\.\d+)?)+$|@.*$|::h[0-9a-f]{16}$| \[clone .*$")
_VARIANT = re.compile(r"_(avx|avx2|avx512|sse\d*|ssse\d|evex|erms|unaligned)(_.*|$)")
_LIBRARY = re.compile(r"\.so(\.[0-9.]+)?$|-\d[0-9.]*\.so$")
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
_INDEX = re.compile(r"\[\d+\]")
# Below every program's frames, and malloc's own, which each glibc calls otherwise.
_NOT_TELLING = re.compile(
    r"__libc_start\w*|_start|start_thread|(__)?clone3?|thread_start|(__GI_)?(__libc_)?(free|malloc|calloc|realloc|cfree)"
    r"|_?int_(free|malloc|realloc|memalign)\w*|malloc_\w+|tcache_\w+|unlink_chunk\w*|sysmalloc\w*|systrim\w*"
)
_PARTS = 10  # of what leaked; a type whose roots keep a smaller part is no cause of its own
_UNTYPED = ("unknown", "text", "zeros", "pointers")


class Words(NamedTuple):
    """What a signature is made of, and a line for people."""

    kind: str
    words: Sequence[str]
    text: str


Waiting = Callable[[int], Optional[str]]  # the function in which a thread of that number waits, or None


class Known(NamedTuple):
    """What is known besides findings.

    :param leaked: types of leaked blocks, as ``blocks leaks`` has them; None: not known.
    """

    waiting: Waiting = lambda number: None
    leaked: Optional[Sequence[LeakGroupRow]] = None


def find_causes(
    identity: Identity, died: Optional[Death], findings: Sequence[Finding], known: Known
) -> Iterator[CauseRow]:
    """Iterate over the causes of a core, the first of them first.

    :param findings: worst first.
    """
    name = program_name(identity.exe)
    found: List[Tuple[Words, Optional[int], Optional[int]]] = []
    if died is not None:
        found.append((_crash(died, identity.build_id), None, None))
    for number, finding in enumerate(findings):
        found += [(words, number, bytes_) for words, bytes_ in _of_finding(finding, known)]
    for rank, (words, number_, bytes_) in enumerate(found):
        listed = [name, words.kind, *words.words]
        yield CauseRow(rank, signature_of(listed), words.kind, words.text, listed, number_, bytes_)


def program_name(path: Optional[str]) -> str:
    """Return what versions of a program have in common: "python" of ``/usr/bin/python3.11``."""
    return _VERSIONED.sub("", os.path.basename(path or "")) or "?"


def signature_of(words: Sequence[str]) -> str:
    """Return the id of a cause, the version of this scheme in front."""
    text = json.dumps(list(words))
    return f"{VERSION}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


# ---- crashes ----


def _crash(died: Death, build_id: Optional[str]) -> Words:
    functions = _functions(died.frames)
    if functions:
        return Words("crash", [died.signal, *functions], f"{died.signal} in {' < '.join(functions)}")
    said = _NUMBER.sub("#", died.message or "")
    places = [frame for frame in died.frames[:1] if not frame.startswith("0x")]
    text = f"{died.signal} at {places[0] if places else 'an unknown place'}"
    return Words("crash", [died.signal, said, build_id or "", *places], f"{text}: {said}" if said else text)


def _functions(frames: Sequence[str]) -> Sequence[str]:
    """Return the functions of frames, a module where one has no name; nothing where none has."""
    if all(_OFFSET.fullmatch(frame) or frame.startswith("0x") for frame in frames):
        return ()
    own = [frame for frame in frames if not _NOT_TELLING.fullmatch(_PLACE.sub("", frame))]
    return [name for name in map(function_name, own or frames) if name]


def function_name(frame: str) -> str:
    """Return what a frame has in common with that of another build: "flush" of "main.c:212 flush<int>(char*)".

    Of a frame without a name it is the module; "" of one without either.
    """
    if frame.startswith("0x"):
        return ""
    if match := _OFFSET.fullmatch(frame):
        return _LIBRARY.sub("", match[1])
    name = _SUFFIX.sub("", _without_brackets(_PLACE.sub("", frame)).strip())
    name = name[len("__GI_") :] if name.startswith("__GI_") else name
    return _VARIANT.sub("", name).lstrip("_") or name


def _without_brackets(name: str) -> str:
    """Return a function's name without its arguments and those of templates; ``operator<`` and its like stay."""
    kept: List[str] = []
    depth = 0
    for at, char in enumerate(name):
        operator = name[:at].endswith(("operator", "operator<", "operator>", "operator-"))
        if char in "<(" and not operator:
            depth += 1
        elif char in ">)" and depth and not operator:
            depth -= 1
        elif not depth:
            kept.append(char)
    return "".join(kept)


# ---- findings ----


def _of_finding(finding: Finding, known: Known) -> Iterator[Tuple[Words, Optional[int]]]:
    if finding.kind == "leak":
        yield from _leaks(finding, known.leaked)
    elif finding.details.get("locks") is not None:
        yield _locks(finding, known.waiting), finding.bytes
    elif finding.details.get("table") is not None:
        table = _INDEX.sub("[]", str(finding.details["table"]))
        yield Words(finding.kind, [table], f"{finding.kind} of {table}"), finding.bytes
    else:
        words = _others(finding)
        yield (
            Words(finding.kind, words, f"{finding.kind}: {', '.join(words)}" if words else finding.kind),
            finding.bytes,
        )


def _leaks(finding: Finding, leaked: Optional[Sequence[LeakGroupRow]]) -> Iterator[Tuple[Words, Optional[int]]]:
    """Iterate over the types that keep most of what leaked; where none is known that is one cause."""
    kept: "dict[str, int]" = {}
    for row in leaked or ():
        name = "" if row.recognised_by in _UNTYPED else leaked_type(row.type)
        kept[name] = kept.get(name, 0) + row.kept_bytes
    whole = sum(kept.values())
    large = {name: bytes_ for name, bytes_ in kept.items() if name and bytes_ * _PARTS >= whole}
    for name, bytes_ in sorted((large or {"": finding.bytes or 0}).items(), key=lambda one: (-one[1], one[0])):
        yield Words("leak", [name], f"leak of {name or 'blocks of unknown types'}"), bytes_


def leaked_type(name: str) -> str:
    """Return a type without what varies: that blocks are only similar to it, how many are one after the other."""
    name = name[len("like ") :] if name.startswith("like ") else name
    return name[:-2] if name.endswith("[]") else name


def _locks(finding: Finding, waiting: Waiting) -> Words:
    details = finding.details
    locks = sorted({f"{lock['primitive']} {_variable(lock['name'])}".strip() for lock in details["locks"]})
    cycle = finding.kind in ("deadlock", "self-deadlock")
    numbers = details["threads"] if cycle else [details.get("holder")]
    found = {waiting(number) for number in numbers if number is not None}
    functions = sorted(function_name(name) for name in found if name)
    text = f"{finding.kind} on {', '.join(locks)}"
    return Words(finding.kind, [*locks, *functions], f"{text} in {', '.join(functions)}" if functions else text)


def _variable(name: Optional[str]) -> str:
    """Return a lock's name where that is a variable's: without indices; of blocks and stacks there is none."""
    name = _INDEX.sub("[]", name or "")
    return name if re.fullmatch(r"[A-Za-z_][\w:.\[\]>-]*(\+\d+)?", name) else ""


def _others(finding: Finding) -> Sequence[str]:
    """Return the allocator without what distinguishes several, and what else there is by kind."""
    details: Mapping[str, Any] = finding.details
    allocator = str(details.get("allocator") or "").partition(" ")[0]
    damage = sorted({str(place["kind"]) for place in details.get("places", ())})
    types = [str(one["type"]) for one in details.get("types", ())[:1]]
    return [word for word in (allocator, *damage, *types) if word]
