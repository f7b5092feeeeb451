"""Runs over made-up cores: each has its rows or its error, none twice, however often a run is ended."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import shutil
import signal
import time
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec

import pytest

from gdbext import files
from gdbext.errors import GdbextError, UsageError
from gdbext.fleet import child, merging, parts, run
from gdbext.fleet import layout as layouts
from gdbext.fleet.examine import How, examine, failed
from gdbext.fleet.kinds import NAMES
from gdbext.fleet.layout import DatasetError, Layout, Part
from gdbext.fleet.pool import Limits, need_of
from gdbext.fleet.run import Run, Wishes
from gdbext.fleet.sources import find_sources
from gdbext.fleet.stores import places

from . import made

pytestmark = pytest.mark.skipif(not (find_spec("pyarrow") and find_spec("duckdb")), reason="needs pyarrow and duckdb")
HOW = How(("triage",))


@pytest.fixture(autouse=True)
def _made_up(monkeypatch):
    monkeypatch.setattr(run, "examine", made.examine)


def run_over(cores, dataset, limits=made.UNLIMITED, watcher=None):
    return Run(str(dataset), HOW, limits, watcher or made.Unwatched()).run(find_sources([str(cores)], ()))


def errors_of(dataset):
    layout = Layout(str(dataset))
    files = [layout.path("cores", part) for part in layout.parts()]
    query = f"SELECT path, error_kind FROM read_parquet({files!r}, hive_partitioning = false)"
    return {os.path.basename(path): kind for path, kind in made.query(query)}


def test_each_core_has_its_rows_or_its_error(tmp_path):
    once = tmp_path / "once"
    texts = ["fine", "no-core", "hang", "kill", f"kill-once {once}", "eat", "defect", "fine too"]
    cores = made.write_cores(tmp_path / "cores", texts)
    summary = run_over(cores, tmp_path / "data", Limits(3, 4 << 30, 1.0))
    assert summary == (8, 5, 0) and once.exists()
    kinds = [None, "bad-core", "timeout", "killed", None, "too-large", "internal", None]
    assert errors_of(tmp_path / "data") == {f"core.{at:03d}": kind for at, kind in enumerate(kinds)}


def test_what_a_packed_file_holds_is_said_of_the_file_that_was_named(tmp_path):
    packed = tmp_path / "core.gz"
    packed.write_bytes(gzip.compress(b"no core"))
    (source,) = find_sources([str(packed)], ())
    (row,) = examine(source, HOW)["rows"]["cores"]
    assert any(str(cell).startswith(f"{packed} is not an ELF file") for cell in row)


def test_what_has_rows_is_not_examined_again_and_a_changed_core_is_another(tmp_path):
    cores = made.write_cores(tmp_path / "cores", ["a", "b"])
    assert run_over(cores, tmp_path / "data") == (2, 0, 0)
    assert run_over(cores, tmp_path / "data") == (0, 0, 2)
    (cores / "core.000").write_text("changed")
    assert run_over(cores, tmp_path / "data") == (1, 0, 1)
    assert len(made.rows_of(tmp_path / "data")["cores"]) == 3


def test_cores_are_discarded_once_all_have_rows_unless_they_have_changed(tmp_path):
    cores = made.write_cores(tmp_path / "cores", ["a", "no-core", "b"])
    found = find_sources([str(cores)], ())
    (cores / "core.002").write_text("changed")
    Run(str(tmp_path / "data"), HOW, made.UNLIMITED, made.Unwatched(), Wishes(discard=True)).run(found)
    assert os.listdir(cores) == ["core.002"] and len(made.rows_of(tmp_path / "data")["cores"]) == 3


def test_no_more_than_the_limits_allow_is_at_work(tmp_path):
    seen = []

    class Watcher:
        def at(self, running, waiting):
            seen.append((len(running), sum(one.task.memory for one in running)))

    cores = made.write_cores(tmp_path / "cores", ["x" * size for size in (1, 9000, 1, 9000, 1)])
    memory = 2 * need_of(9000, 4 << 30)
    assert run_over(cores, tmp_path / "data", Limits(3, memory, None), Watcher()).examined == 5
    assert max(seen)[0] == 2 and max(size for _, size in seen) <= memory


def killed_run(cores, dataset, seconds):
    """Run in a process of its own, which is killed after a while; return whether it has ended before."""
    pid = os.fork()
    if not pid:
        run_over(cores, dataset)
        os._exit(0)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return True
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def test_a_run_that_is_killed_again_and_again_leaves_the_same_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "_CORES", 10)
    cores = made.write_cores(tmp_path / "cores", [f"text {number}" for number in range(40)])
    run_over(cores, tmp_path / "whole")
    chance = random.Random(5)
    for _ in range(5):
        if killed_run(cores, tmp_path / "data", chance.uniform(0.1, 0.6)):
            break
    run_over(cores, tmp_path / "data")
    assert made.rows_of(tmp_path / "data") == made.rows_of(tmp_path / "whole")
    left = [name for _, _, names in os.walk(tmp_path / "data") for name in names if name.endswith(".part")]
    assert not left and not os.listdir(tmp_path / "data" / "pending")


@pytest.mark.parametrize("at", (2, 3))  # answers, problems, cores
def test_wherever_a_disk_is_full_the_next_run_completes_the_rows(tmp_path, monkeypatch, at):
    cores = made.write_cores(tmp_path / "cores", ["a", "bc"])
    run_over(cores, tmp_path / "whole")
    layout, sources = Layout(str(tmp_path / "data")), find_sources([str(cores)], ())
    layout.make()
    for source in sources:
        text = json.dumps(run.measured(made.examine(source, HOW), 0, 0, 0))
        (tmp_path / "data" / "pending" / f"{source.core}.json").write_text(text)
    with monkeypatch.context() as patch:
        patch.setattr(places, "replacing", full_at(at))
        with pytest.raises(DatasetError, match="No space left"):
            write_part(layout, Part("broken", 1), [source.core for source in sources])
        assert not layout.parts()
    assert run_over(cores, tmp_path / "data") == (0, 0, 2)
    assert made.rows_of(tmp_path / "data") == made.rows_of(tmp_path / "whole")
    assert not any(os.path.exists(layout.path(name, Part("broken", 1))) for name in NAMES)


def write_part(*arguments):
    """Do it in a process of its own."""
    try:
        child.run(partial(parts.write_part, *arguments))
    except GdbextError as error:
        raise DatasetError(error.message) if error.kind == DatasetError.kind else error from None


def full_at(number):
    """Return what writes files, but for one."""
    writes = []

    @contextmanager
    def replacing(path):
        writes.append(path)
        with files.replacing(path) as stream:
            yield stream
            if len(writes) == number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return replacing


def test_a_folder_of_something_else_and_a_second_run_are_refused(tmp_path, monkeypatch):
    cores = made.write_cores(tmp_path / "cores", ["a"])
    with pytest.raises(DatasetError, match="no dataset"):
        run_over(cores, cores)
    layout = Layout(str(tmp_path / "data"))
    layout.make()
    monkeypatch.setattr(layouts, "_PATIENCE", 0.1)
    with layout.written(), pytest.raises(UsageError, match="another run writes"):
        run_over(cores, tmp_path / "data")
    (tmp_path / "data" / "dataset.json").write_text('{"schema": "gdbext/fleet/99"}')
    with pytest.raises(DatasetError, match="gdbext/fleet/99"):
        run_over(cores, tmp_path / "data")


def test_a_child_takes_no_more_address_space_than_it_may(tmp_path):
    assert len(child.run(lambda: "x" * (8 << 20), 64 << 20)) == 8 << 20
    with pytest.raises(Exception, match="not enough memory"):
        child.run(lambda: len(bytearray(256 << 20)), 64 << 20)


def failing(kinds):
    """Return what examines cores as the usual one does, but for those whose texts begin like this: these fail."""

    def examine(source, how):
        with open(source.path, encoding="utf-8") as file:
            text = file.read()
        return failed(source, "made-up", f"by {kinds}") if text.startswith(kinds) else made.examine(source, how)

    return examine


def rerun(cores, dataset, retry=True):
    sources = find_sources([str(cores)], ())
    return Run(str(dataset), HOW, made.UNLIMITED, made.Unwatched(), Wishes(retry=retry)).run(sources)


def test_cores_without_an_answer_are_tried_again_and_have_one_row_each(tmp_path, monkeypatch):
    cores = made.write_cores(tmp_path / "cores", ["a", "b1", "b2", "c", "d"])
    run_over(cores, tmp_path / "whole")
    monkeypatch.setattr(run, "examine", failing(("b", "c")))
    assert run_over(cores, tmp_path / "data") == (5, 3, 0)
    monkeypatch.setattr(run, "examine", failing(("c",)))
    assert rerun(cores, tmp_path / "data", retry=False) == (0, 0, 5)
    assert rerun(cores, tmp_path / "data") == (3, 1, 2)
    assert [kind for kind in errors_of(tmp_path / "data").values() if kind] == ["made-up"]
    monkeypatch.setattr(run, "examine", made.examine)
    assert rerun(cores, tmp_path / "data") == (1, 0, 4)
    assert made.rows_of(tmp_path / "data") == made.rows_of(tmp_path / "whole")
    assert rerun(cores, tmp_path / "data") == (0, 0, 5)


def ended_at(number):
    """Return functions that write and remove files of a dataset, until so many were: then the process is killed."""
    done = []

    def counted(work):
        def do(self, name, *arguments, **named):
            done.append(name)
            if len(done) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            work(self, name, *arguments, **named)

        return do

    return counted(places.Files.write), counted(places.Files.remove)


def killed_at(number, work, monkeypatch):
    """Do work in a process that is killed at its n-th file; return whether it was."""
    with monkeypatch.context() as patch:
        for name, function in zip(("write", "remove"), ended_at(number)):
            patch.setattr(places.Files, name, function)
        started = child.start(work)
        while not started.read():
            pass
        ended = started.finish()
    assert ended.code in (0, -signal.SIGKILL)
    return ended.code < 0


@pytest.mark.parametrize("at", (2, 4))  # of cores without the old row; answers, problems, cores with the new one
def test_rows_are_replaced_whole_wherever_a_retry_is_killed(tmp_path, monkeypatch, at):
    cores = made.write_cores(tmp_path / "cores", ["a", "b", "c"])
    run_over(cores, tmp_path / "whole")
    monkeypatch.setattr(run, "examine", failing(("b",)))
    run_over(cores, tmp_path / "data")
    monkeypatch.setattr(run, "examine", made.examine)
    (again,) = (one for one in find_sources([str(cores)], ()) if one.path.endswith("1"))
    assert killed_at(at, partial(replace_row, str(tmp_path / "data"), again), monkeypatch)
    rerun(cores, tmp_path / "data")
    assert made.rows_of(tmp_path / "data") == made.rows_of(tmp_path / "whole")


def replace_row(dataset, source):
    layout = Layout(dataset)
    with open(layout.pending_path(source.core), "w", encoding="utf-8") as file:
        json.dump(run.measured(made.examine(source, HOW), 0, 0, 0), file)
    one = Run(dataset, HOW, made.UNLIMITED, made.Unwatched(), Wishes(retry=True))
    one._again = frozenset([source.core])
    one._write(Part("again", 1), [source.core])


def small_parts(folder, count):
    """Make a dataset of so many parts, and return it."""
    cores = made.write_cores(folder / "cores", [])
    for number in range(len(os.listdir(cores)), count):
        (cores / f"core.{number}").write_text(f"text {number}" if number % 3 else "no-core")
        run_over(cores, folder / "small")
    return folder / "small"


def test_small_parts_become_one_and_however_that_is_ended_all_rows_count_once(tmp_path, monkeypatch):
    dataset = small_parts(tmp_path, 3)
    rows = made.rows_of(dataset)
    monkeypatch.setattr(merging, "_FEW", 2)
    layouts_ = []
    killed = True
    while killed:
        layouts_.append(Layout(str(tmp_path / f"data-{len(layouts_)}")))
        shutil.copytree(dataset, layouts_[-1].folder)
        merge = partial(merging.merge_small, layouts_[-1], Part("joined", 1))
        killed = killed_at(len(layouts_), merge, monkeypatch)
    # What it is made of, and three kinds; then of three parts as many, and what it is made of, are removed.
    assert len(layouts_) == 1 + 3 + 7 + 1 + 1
    assert all_rows(layouts_) == [rows] * len(layouts_)
    for layout in layouts_:
        layout.clean(NAMES)
    assert all_rows(layouts_) == [rows] * len(layouts_)
    assert len(layouts_[-1].parts()) == 1 and not layouts_[-1].found("replaced")


def all_rows(layouts_):
    """Return the rows of datasets, as :func:`made.rows_of`."""
    return child.run(lambda: [made.read_rows(layout.folder) for layout in layouts_])


def test_a_run_joins_small_parts_when_there_are_many_and_lets_others_be(tmp_path, monkeypatch):
    monkeypatch.setattr(merging, "_FEW", 3)
    dataset = small_parts(tmp_path, 3)
    layout = Layout(str(dataset))
    assert len(layout.parts()) == 3
    other = layout.parts()[0]
    foreign(layout.path("cores", other))
    small_parts(tmp_path, 4)
    assert len(layout.parts()) == 4
    small_parts(tmp_path, 5)
    assert len(layout.parts()) == 2 and other in layout.parts()
    assert len(made.rows_of(dataset)["cores"]) == 5


def foreign(path):
    """Have a file be of another version, with a column more."""
    made.query(f"COPY (SELECT *, 1 AS more FROM read_parquet('{path}')) TO '{path}.new' (FORMAT parquet)")
    os.replace(f"{path}.new", path)
