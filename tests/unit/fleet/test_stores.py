"""Cores from an object store, and a dataset in one: the same rows as of folders, however often a run is ended."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import tempfile
from functools import partial
from importlib.util import find_spec

import pytest

from gdbext.errors import GdbextError, UsageError
from gdbext.fleet import child, run
from gdbext.fleet.asking import Dataset
from gdbext.fleet.examine import How
from gdbext.fleet.pool import Limits
from gdbext.fleet.run import Run
from gdbext.fleet.sources import find_sources
from gdbext.fleet.stores.objects import Store, StoreError
from tests.support.cache import CHECKOUT
from tests.support.objectstore import BUCKET, object_store

from . import made

NEEDED = ("pyarrow", "duckdb", "s3fs", "moto")
pytestmark = pytest.mark.skipif(not all(map(find_spec, NEEDED)), reason=f"needs {', '.join(NEEDED)}")
TEXTS = ["a", "no-core", "bc"]


@pytest.fixture(scope="module")
def server():
    with object_store() as environment:
        yield environment


@pytest.fixture
def bucket(server, monkeypatch, tmp_path):
    """A prefix of its own, and temporary files where they can be counted."""
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(run, "examine", made.examine)
    yield f"s3://{BUCKET}/{tmp_path.name}"
    assert os.listdir(tmp_path / "tmp") == []


def upload(files, url):
    """Put files below a URL, by their paths; a function of a process of its own."""
    store = Store(url)
    for name, path in files.items():
        with open(path, "rb") as file:
            store.write(name, file.read())


@pytest.fixture
def cores(bucket, tmp_path):
    """Cores in a folder, and the same in the store."""
    folder = made.write_cores(tmp_path / "cores", TEXTS)
    files = {f"cores/{name}": str(folder / name) for name in os.listdir(folder)}
    child.run(partial(upload, files, bucket))
    return str(folder), f"{bucket}/cores"


def run_over(source, dataset, limits=made.UNLIMITED):
    return Run(str(dataset), How(("triage",)), limits, made.Unwatched()).run(find_sources([source], ()))


def rows(dataset):
    """Return what is known of cores, by their names: of a row what does not differ between places."""
    text = "SELECT core, regexp_extract(path, '[^/]+$'), size, status, error_kind, error FROM cores"
    more = "SELECT core, kind, address, message, corruption FROM problems"
    found, problems = child.run(partial(_ask, str(dataset), (text, more)))
    names = {core: name for core, name, *_ in found}
    assert len(names) == len(found)
    return sorted(map(repr, ([row[1:] for row in found]))), sorted(repr([names[row[0]], *row[1:]]) for row in problems)


def _ask(dataset, texts):
    opened = Dataset(dataset)
    return [list(map(list, opened.ask(text).rows)) for text in texts]


def test_rows_of_a_store_are_those_of_a_folder(cores, bucket, tmp_path):
    local, stored = cores
    assert run_over(local, tmp_path / "data") == (3, 1, 0)
    assert run_over(stored, f"{bucket}/data") == (3, 1, 0)
    assert rows(tmp_path / "data") == rows(f"{bucket}/data")
    assert run_over(stored, f"{bucket}/data") == (0, 0, 3)


def test_an_object_that_has_changed_is_another_core(cores, bucket, tmp_path):
    _, stored = cores
    (before,) = find_sources([f"{stored}/core.000"], (), "/(cores)/")
    (tmp_path / "new").write_text("z")
    child.run(partial(upload, {"cores/core.000": str(tmp_path / "new")}, bucket))
    (after,) = find_sources([f"{stored}/core.00[0]"], ())
    assert before.core != after.core and (before.host, before.path, before.size) == ("cores", f"{stored}/core.000", 1)
    assert before.time > 1e9
    Run(str(tmp_path / "data"), How(("triage",)), made.UNLIMITED, made.Unwatched()).run([before])
    ((error,),) = child.run(partial(_ask, str(tmp_path / "data"), ["SELECT error FROM cores"]))[0]
    assert error.startswith(f"{stored}/core.000 is another one than was listed")


def test_an_upload_that_fails_is_made_up_for_by_the_next_run(cores, bucket, tmp_path, monkeypatch):
    local, stored = cores
    data = f"{bucket}/data"
    run_over(local, tmp_path / "data")
    writes, write = [], Store.write

    def fail(self, name, content):
        writes.append("/run=" in name)
        if sum(writes) == 3:  # answers, problems, cores
            raise StoreError("made up")
        write(self, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", fail)
        with pytest.raises(GdbextError, match="made up"):
            run_over(stored, data)
    assert run_over(stored, data) == (3, 1, 0)
    assert rows(data) == rows(tmp_path / "data")


def test_what_there_is_no_room_for_says_so_and_cores_wait_for_room(cores, tmp_path, monkeypatch):
    _, stored = cores
    seen = []

    class Watcher:
        def at(self, running, waiting):
            seen.append(len(running))

    sources = find_sources([stored], ())
    limits = Limits(4, 4 << 30, None, disk=max(one.size for one in sources))
    Run(str(tmp_path / "data"), How(("triage",)), limits, Watcher()).run(sources)
    assert max(seen) < 4 and rows(tmp_path / "data")[0]
    monkeypatch.setattr("gdbext.fleet.stores.fetching._find_room", lambda place: 2)
    run_over(f"{stored}/core.001", tmp_path / "none")
    found = child.run(partial(_ask, str(tmp_path / "none"), ["SELECT error_kind FROM cores"]))[0]
    assert found == [["too-large"]]


def test_a_core_whose_time_is_over_leaves_no_file(bucket, tmp_path):
    (tmp_path / "core").write_text("hang")
    child.run(partial(upload, {"core": str(tmp_path / "core")}, bucket))
    assert run_over(f"{bucket}/core", tmp_path / "data", Limits(1, 4 << 30, 2.0)) == (1, 1, 0)


def test_holes_stay_holes(bucket, tmp_path, monkeypatch):
    (tmp_path / "core").write_bytes(b"x" + bytes(3 << 20) + b"y" + bytes(1 << 20))
    child.run(partial(upload, {"core": str(tmp_path / "core")}, bucket))
    monkeypatch.setattr(run, "examine", _facts)
    run_over(f"{bucket}/core", tmp_path / "data")
    ((said,),) = child.run(partial(_ask, str(tmp_path / "data"), ["SELECT error FROM cores"]))[0]
    size, blocks, equal = said.split()
    assert int(size) == (4 << 20) + 2 and int(blocks) * 512 < 1 << 20 and equal == "120121"


def _facts(source, how):
    facts = os.stat(source.path)
    with open(source.path, "rb") as file:
        data = file.read()
    text = f"{facts.st_size} {facts.st_blocks} {data[0]}{data[(3 << 20) + 1]}"
    return made.failed(source, "made-up", text)


def test_what_cannot_be_had_says_so(bucket, monkeypatch):
    with pytest.raises(GdbextError, match="does not exist"):
        find_sources([f"{bucket}/nowhere"], ())
    with pytest.raises(UsageError, match="no protocol nothing"):
        find_sources(["nothing://x"], ())
    with pytest.raises(GdbextError, match="no dataset of gdbext fleet"):
        child.run(partial(_ask, f"{bucket}/nowhere", ()))
    gone = {"endpoint_url": "http://127.0.0.1:9", "config_kwargs": {"retries": {"max_attempts": 0}}}
    monkeypatch.setitem(importlib.import_module("fsspec.config").conf, "s3", gone)
    with pytest.raises(GdbextError, match="cannot be read: Could not connect"):
        find_sources([bucket], ())


def test_nothing_of_stores_is_imported_without_a_url(tmp_path):
    cores = made.write_cores(tmp_path / "cores", ["no core"])
    program, data = [sys.executable, "-X", "importtime", "-m", "gdbext.cli", "fleet"], str(tmp_path / "data")
    imported = []
    for words in (["run", str(cores), "-o", data, "--no-gdb"], ["top", data], ["top", "nothing://x/y"]):
        done = subprocess.run([*program, *words], cwd=CHECKOUT, capture_output=True, text=True)
        imported.append(re.search(r"\| +(fsspec|s3fs|aiobotocore)\b", done.stderr) is not None)
    assert imported == [False, False, True]
