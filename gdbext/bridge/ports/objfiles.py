"""Whether the files that gdb was given are those of the target: a wrong executable or sysroot is told once.

gdb takes symbols from whatever file it finds under a library's name and only warns. Nothing of such a file
is believed anyway (``heap/glibc/find/named.py``); this says so, also where it has no symbol that we ask for.
"""

from __future__ import annotations

import os
from typing import Iterator, Mapping, Optional, Sequence

import gdb

from gdbext.bridge.decoded import decoded, name_of
from gdbext.process import Identity, Module
from gdbext.report import Problem
from gdbext.wording import count_text


def check_objfiles(modules: Sequence[Module], identity: Identity) -> Sequence[Problem]:
    """Return one problem when gdb has other builds of the target's files, else none."""
    known = _build_ids()
    wrong = [text for module in modules for text in _wrong(module, identity, known)]
    if not wrong:
        return []
    more = f"; and of {count_text(len(wrong) - 1, 'more file')}" if len(wrong) > 1 else ""
    message = f"gdb was given other builds than the target's, their symbols are not believed: {wrong[0]}{more}"
    return [Problem("wrong-debug-info", None, message)]


def _wrong(module: Module, identity: Identity, known: Mapping[str, str]) -> Iterator[str]:
    main = module.path == identity.exe and module.build_id == identity.build_id
    space = gdb.current_progspace()
    file = name_of(space) if main and space is not None else decoded(lambda: gdb.solib_name(module.base))
    ours = _find(known, file)
    if ours is not None and module.build_id is not None and ours != module.build_id:
        yield f"{file} has build-id {ours}, the target's {module.path} {module.build_id}"


def _build_ids() -> Mapping[str, str]:
    found: dict[str, str] = {}
    for objfile in gdb.objfiles():
        for name in (name_of(objfile), name_of(objfile, "username")):
            if name and objfile.build_id:
                found[name] = objfile.build_id
    return found


def _find(known: Mapping[str, str], file: Optional[str]) -> Optional[str]:
    if file is None:
        return None
    return known.get(file) or known.get(os.path.realpath(file))
