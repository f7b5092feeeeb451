"""Slabs that few blocks keep, caches that hold much: on tcmalloc, mimalloc and musl, each beside its healthy twin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gdbext
from tests.gdb.test_verdict import dumped
from tests.support import musls, programs
from tests.support.glibcs import Unavailable, glibc
from tests.support.mimallocs import mimalloc
from tests.support.tcmallocs import tcmalloc


def on_tcmalloc(folder: Path) -> "tuple[Path, dict[str, str]]":
    return programs.build("slab_holes", glibc("system")), dict(tcmalloc("bookworm").environment)


def on_mimalloc(folder: Path) -> "tuple[Path, dict[str, str]]":
    return programs.build("slab_holes", glibc("system")), {"LD_PRELOAD": str(mimalloc("debian"))}


def on_musl(folder: Path) -> "tuple[Path, dict[str, str]]":
    return musls.build("slab_holes", folder, "-static"), {}


def findings_of(make, folder: Path, *arguments: str, **more: str):
    """Run the program to its abort and return what triage finds, and the truth."""
    try:
        program, environment = make(folder)
    except Unavailable as reason:
        pytest.skip(str(reason))
    truth = folder / "truth.json"
    surroundings = {**environment, **more}
    core = dumped(program, folder, "--truth", str(truth), "--abort", *arguments, environment=surroundings)
    with gdbext.open_core(str(core)) as session:
        page = session.triage()
        kinds = {one.kind: one for one in page.findings if one.kind != "leak"}
        assert session.run("rss").data.residual == 0
    return kinds, json.loads(truth.read_text())["details"]


@pytest.mark.parametrize("make", [on_tcmalloc, on_mimalloc, on_musl])
def test_few_blocks_keep_slabs(make, tmp_path):
    kinds, truth = findings_of(make, tmp_path)
    assert list(kinds) == ["fragmentation"]
    freed = truth["taken"] - truth["live"]
    assert 0.9 * freed < kinds["fragmentation"].bytes < 1.25 * freed  # musl has its header in each


@pytest.mark.parametrize("make", [on_tcmalloc, on_mimalloc, on_musl])
def test_as_many_that_are_neighbours_keep_none(make, tmp_path):
    assert findings_of(make, tmp_path, "--healthy")[0] == {}


@pytest.mark.parametrize("make", [on_tcmalloc, on_mimalloc])
def test_caches_of_threads_hold_much(make, tmp_path):
    limit = {"TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES": str(1 << 30)}
    kinds, truth = findings_of(make, tmp_path, "--cached=8", **limit)
    assert list(kinds) == ["cache-hoarding"]
    assert 0.3 * truth["taken"] < kinds["cache-hoarding"].bytes <= 1.1 * truth["taken"]


@pytest.mark.parametrize("make", [on_tcmalloc, on_mimalloc])
def test_as_much_beside_more_that_lives_is_nothing(make, tmp_path):
    assert findings_of(make, tmp_path, "--cached=8", "--kept=150")[0] == {}
