"""What must hold of any answer over any core, however damaged."""

from __future__ import annotations

import json
import re
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional, Sequence

import gdbext
from gdbext.coretarget import read_core_target, target_of
from gdbext.errors import GdbextError
from gdbext.grammar.catalogue import default_settings
from gdbext.memory.elf.elfcore import ElfCore
from gdbext.session import Session
from gdbext.session.answers import Answer
from tests.fuzz.image import Mutation
from tests.support.nmsymbols import NmSymbols

# Bounds, by what is written in a core (its bytes without holes).
SECONDS = 5.0  # of CPU, for all questions to one mutant
SECONDS_PER_MB = 1.0
ROOM = 384 << 20  # bytes of address space beyond what the worker had, the core's own mapping not counted
ROOM_PER_BYTE = 32
ROWS = 200  # of each table, as text

_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_HEAPS = ("blocks", "glibc", "jemalloc", "rss")  # whose subject is malloc's heap, not the program's data
WALKED = ("triage", "blocks summary", "glibc chunks", "glibc check")  # what speaks of every chunk


def seconds(written: int) -> float:
    """Return the CPU time that a core of so many bytes explains."""
    return SECONDS + SECONDS_PER_MB * written / 1e6


def room(written: int, size: int) -> int:
    """Return the address space that a core explains: its own mapping, and what is made of its bytes."""
    return size + ROOM + ROOM_PER_BYTE * written


def commands(allocator: str, truth: dict[str, Any], block: int) -> list[str]:
    """Return every command that reads, as it can be asked of a core without a debugger.

    :param block: an address in some block.
    """
    heaps = {
        "glibc": ("arenas", "heaps", "chunks", "bins", "tcache", "mmapped", "check", "trim"),
        "jemalloc": ("arenas", "bins", "extents", "large", "tcache", "decay", "check"),
        "": (),
    }[allocator]
    own = [f"{allocator} {name}" for name in heaps]
    general = ["triage", "rss", "lockwait", "blocks summary", "blocks list --min-size 64"]
    general += ["blocks leaks --list --possible", "blocks types", "blocks retained", "triage --leaks"]
    general += ["blocks list --columns address,size,state,type,reach", f"blocks list --where 'address >= {block}'"]
    at = [f"blocks {name} {block:#x}" for name in ("at", "refs", "path")]
    return [*general, *own, *at, *_about_tables(truth)]


def check_command(allocator: str) -> Optional[str]:
    """Return the command that lists what is wrong with a heap."""
    return f"{allocator} check" if allocator else None


def _about_tables(truth: dict[str, Any]) -> list[str]:
    details, asked = truth.get("details") or {}, []
    for group in [one for one in details.get("groups", {}).values() if one.get("tables")][:2]:
        table = max(group["tables"], key=lambda one: one["entries"])
        options = f"{table['array']} --raw --bins {table['bins']} --stride 16 --head 8 --next 56 --hash 80"
        asked += [f"walklist {options} --check", f"slabskew {options}"]
    for one in [one for one in details.get("lists", {}).values() if one["first"]][:6]:
        asked += [f"walklist {one['first']} --raw --next 0 --prev 8 --check", f"listcount {one['first']} 0"]
    return asked


class Failure(Exception):
    """Something that must not be; its text is the class of it."""


def read_symbols(core: Path, debug_dir: Path) -> NmSymbols:
    """Return the symbols of an undamaged core's files, or of their debug info: they lead to heaps however damaged."""
    target = read_core_target(str(core))
    modules = []
    for module in target.modules:
        build_id = module.build_id or "--"
        debug = debug_dir / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
        modules.append(replace(module, path=str(debug) if debug.exists() else module.path))
    return NmSymbols(replace(target, modules=modules), "")


def _open(path: Path, symbols: Optional[NmSymbols]) -> Session:
    if symbols is None:
        return gdbext.open_core(path)
    core = ElfCore(str(path))
    target = replace(target_of(core), symbols=symbols)
    return Session(lambda: target, settings=default_settings({}), let_go=core.close)


def ask(core: Path, asked: Sequence[str], mutation: Mutation, symbols: Optional[NmSymbols] = None) -> str:
    """Ask a core and judge the answers; return what came of it: an exit status, or the kind of an error.

    :param symbols: those that a debugger would know; None: structures are found by themselves.
    :raises Failure: an answer is none that may be given.
    """
    try:
        with _open(core, symbols) as session:
            return " ".join(dict.fromkeys(_one(session, command, mutation) for command in asked))
    except GdbextError as error:
        check_text(str(error))
        return f"error:{error.kind}"


def _one(session: Session, command: str, mutation: Mutation) -> str:
    try:
        answer = session.run(command)
        text = answer.text(limit=ROWS)
        document = answer.to_json()
    except GdbextError as error:
        check_text(str(error))
        return f"error:{error.kind}"
    check_text(text)
    json.loads(document)
    _check_problems(command, answer, mutation)
    if mutation.lost and command in WALKED and (answer.complete or int(answer.status) == 0):
        raise Failure(f"complete without what was taken away: {command}")
    return str(int(answer.status))


def _check_problems(command: str, answer: Answer, mutation: Mutation) -> None:
    """Hold a check to what was damaged, and to what was not; of undamaged cores it has no problems at all."""
    corrupt = [one for one in answer.problems if one.corruption]
    if mutation.harmless and corrupt and command.split()[0] in _HEAPS:
        raise Failure(f"false alarm: {command}: {corrupt[0].kind}")
    if mutation.reported and command.endswith(" check") and len(answer.problems) <= mutation.usual:
        raise Failure(f"not reported: {mutation.reported}")


def check_text(text: str) -> None:
    """Check that text may be written to a terminal.

    :raises Failure: it holds what a terminal obeys.
    """
    found = _CONTROL.search(text)
    if found:
        raise Failure(f"control byte {found.group()!r}")


def describe(error: BaseException) -> str:
    """Return the class of a failure: of an exception its kind, and the place in gdbext that it came from."""
    if isinstance(error, Failure):
        return str(error)
    ours = [one for one in traceback.extract_tb(error.__traceback__) if "/gdbext/" in one.filename] or [None]
    place = f"{ours[-1].filename.rpartition('/gdbext/')[2]}:{ours[-1].name}" if ours[-1] else "outside"
    return f"{type(error).__name__} in {place}"
