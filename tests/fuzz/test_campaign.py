"""A short campaign of damaged cores, the same each time, and the mutants that have failed before."""

from __future__ import annotations

from typing import Any, Callable, Iterator

import pytest

from tests.fuzz import campaign, cores
from tests.fuzz.campaign import Worker, read_seeds, run_mutants, run_numbers

GDB = "tests.fuzz.gdbdoor"
LIBRARY = "tests.fuzz.worker"
FEW = ("tcaches-2.36", "leaks-static", "locks-2.31", "small-i386", "jemalloc-5.3.1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def ask(folder: Any) -> Iterator[Callable[..., Worker]]:
    """Return a function that gives the worker of some kernels and a door, with the cores that it needs."""
    workers: dict[Any, Worker] = {}

    def worker(names: Any, kernels: str = "native", door: str = LIBRARY) -> Worker:
        missing = cores.build(folder, names)
        if len(missing) == len(names):
            pytest.skip("; ".join(missing.values()))
        key = kernels, door
        workers[key] = workers.get(key) or Worker(folder, kernels, door)
        return workers[key]

    yield worker
    for one in workers.values():
        one.close()


def failures(lines: Any) -> list[str]:
    """Return what failed, but for what is known to be open."""
    known = {(one["mutator"], one["was"]) for one in read_seeds() if "open" in one}
    failed = (one for one in lines if one["outcome"] == "failure")
    new = [one for one in failed if (one["mutator"], one["failure"]) not in known]
    return [f"{one['failure']}: {one['core']} {one['mutator']} {one['number']} {one['commands']}" for one in new]


def test_damaged_cores(ask):
    assert failures(run_numbers(ask(FEW), 0, 80)) == []


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("kernels", campaign.KERNELS)
def test_more_damaged_cores(ask, kernels):
    assert failures(run_numbers(ask(tuple(cores.CORES), kernels), 1000, 600)) == []


@pytest.mark.full
@pytest.mark.slow
def test_damaged_cores_in_gdb(ask):
    assert failures(run_numbers(ask(FEW, door=GDB), 1000, 60)) == []


def _seeds() -> Iterator[Any]:
    for seed in read_seeds():
        marks = [pytest.mark.xfail(reason=seed["open"])] if "open" in seed else []
        marks += [pytest.mark.full] if seed.get("door") == "gdb" else []
        yield pytest.param(seed, marks=marks, id=f"{seed['core']}-{seed['mutator']}-{seed['number']}")


@pytest.mark.parametrize("seed", list(_seeds()))
def test_what_failed_before(ask, seed):
    worker = ask((seed["core"],), door=GDB if seed.get("door") == "gdb" else LIBRARY)
    mutant = (seed["core"], seed["mutator"], seed["number"], seed["commands"])
    (line,) = run_mutants(worker, [mutant])
    assert line["outcome"] not in ("failure", "nothing to damage"), line


def test_a_journal_is_resumed_where_it_ends(tmp_path):
    (tmp_path / campaign.JOURNAL).write_text(
        '{"next": 80, "tried": {"page": {"answered": 3}}, "failures": []}\n{"next": 1'
    )
    (batch,) = campaign.read_journal(tmp_path)
    assert batch["next"] == 80
    assert list(campaign.table([batch]))[-1].split() == ["all", "3", "3"]
