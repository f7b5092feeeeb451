"""The recorded layouts of jemalloc, held against gdb's own reading of each version's debug info."""

from __future__ import annotations

import re

import pytest

from gdbext.heap.jemalloc.layouts import WANTED, recorded
from tests.support.gdbrun import run_gdb
from tests.support.glibcs import Unavailable
from tests.support.jemallocs import SOURCES, VERSIONS, jemalloc

LAYOUTS = {layout.version: layout for layout in recorded()}


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_are_those_of_the_debug_info(version):
    layout = LAYOUTS[version]
    told = ask(version, [line for name in layout.structs for line in questions(layout, name)])
    for name, struct in layout.structs.items():
        assert told[f"{name} size"] == struct.size
        for key, member in struct.members.items():
            paths = WANTED[name].members[key]
            found = [told[f"{name}.{path}"] for path in paths if f"{name}.{path}" in told]
            assert found and found[0] == (member.offset), (name, key)
    for name, wanted in WANTED.items():
        if name not in layout.structs:
            assert not wanted.needed or name in ("tsd",)


def questions(layout, name):
    tag = layout[name].name
    yield f"{name} size", f"sizeof(struct {tag})"
    for paths in WANTED[name].members.values():
        for path in paths:
            yield f"{name}.{path}", f"(long) &((struct {tag} *) 0)->{path}"


def ask(version, asks):
    """Return gdb's number for each question that it can answer."""
    try:
        library = jemalloc(version).library
    except Unavailable as reason:
        pytest.skip(str(reason))
    arguments = [str(library)]
    for number, (_, question) in enumerate(asks):
        arguments += ["-ex", f'printf "<{number}>%ld\\n", (long) ({question})']
    output = run_gdb(arguments).out
    numbers = {int(at): int(value) for at, value in re.findall(r"<(\d+)>(-?\d+)", output)}
    return {name: numbers[at] for at, (name, _) in enumerate(asks) if at in numbers}


@pytest.mark.parametrize("version", VERSIONS)
def test_tables_say_which_commit_they_are_of(version):
    assert SOURCES[version].commit[:10] in LAYOUTS[version].origin
