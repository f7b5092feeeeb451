"""What a benchmark says of earlier figures."""

from __future__ import annotations

import sys
from argparse import Namespace

import pytest

from tests.support.cache import CHECKOUT

sys.path.insert(0, str(CHECKOUT / "bench"))

import history  # noqa: E402  beside the benchmarks
import instructions  # noqa: E402
import measuring  # noqa: E402
import table  # noqa: E402
from measuring import Row  # noqa: E402

from gdbext.grammar.catalogue import COMMANDS  # noqa: E402


def figures(*starts, name="triage"):
    return {"subject": "heap", "title": "9 chunks", "rows": [{"name": name, "starts": starts}]}


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ((2.4, 2.5, 2.6), ["triage takes 1.25 times what it took at abc1234 of 2026-01-02"]),
        ((2.05, 2.15, 2.3), []),  # hardly more
        ((1.9, 2.6, 2.7), []),  # its rounds and the earlier ones overlap
        ((1.0, 1.1, 1.2), []),
        ((), []),
    ],
)
def test_what_got_slower_beyond_noise(now, said):
    before = {**figures(1.9, 2.0, 2.04), "commit": "abc1234", "date": "2026-01-02"}
    assert list(history.slower(before, figures(*now))) == said
    assert list(history.slower({**before, "rows": []}, figures(*now))) == []


def test_only_the_same_work_on_such_a_machine_is_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "FOLDER", tmp_path / "history")
    assert history.find_last(figures(1.0)) is None
    for value in (1.0, 2.0):
        history.keep(figures(value))
    assert history.find_last(figures(3.0))["rows"][0]["starts"] == [2.0]
    assert history.find_last({**figures(3.0), "title": "10 chunks"}) is None
    monkeypatch.setattr(history, "machine", lambda: {"cpus": 1024})
    assert history.find_last(figures(3.0)) is None


@pytest.mark.parametrize(
    ("now", "status", "line"),
    [
        ({"mark": 1099, "edges": 10}, 0, "mark                      1099          1000  1.099"),
        ({"mark": 1101, "edges": 10}, 1, "over 1.10 times as many, or not counted in both: mark; on purpose? --renew"),
        ({"mark": 1000}, 1, "over 1.10 times as many, or not counted in both: edges; on purpose? --renew"),
    ],
)
def test_a_tenth_more_instructions_are_too_many(capsys, now, status, line):
    assert instructions.compare({"mark": 1000, "edges": 10}, now) == status
    assert line in capsys.readouterr().out.splitlines()


def test_counts_of_other_versions_are_not_compared(tmp_path, monkeypatch, capsys):
    counts = tmp_path / "instructions.json"
    counts.write_text('{"counted with": {"python": "2.7"}, "instructions": {}}')
    monkeypatch.setattr(instructions, "COUNTS", counts)
    monkeypatch.setattr(instructions.shutil, "which", lambda name: name)
    monkeypatch.setattr(sys, "argv", ["bench/instructions.py"])
    assert instructions.main() == 2
    assert "was counted with {'python': '2.7'}" in capsys.readouterr().err


def test_the_table_has_every_command_that_takes_a_core():
    sizes = Namespace(chained=5, small=5, objects=5, arenas=5, mapped=5, threads=5)
    held = {name for subject in table.subjects(sizes).values() for name, _ in table.commands(subject)}
    apart = {"breakpoints", "safe", "shapes save"}  # these change the program, run another command, write a file
    assert {spec.name for spec in COMMANDS if spec.target == "needed"} - held == apart


@pytest.mark.parametrize(
    ("status", "said"), [(0, "4.0 chap"), (-6, "4.0 chap"), (-15, "over 4.0 chap"), (1, ""), (-11, "")]
)
def test_a_peer_that_failed_is_no_measure(status, said):
    ours, peer = (
        Row(name, wall, wall, 0, 0, 1, None, status=end) for name, wall, end in (("x", 2, 0), ("chap", 8, status))
    )
    assert table.against(peer, ours) == said


@pytest.mark.parametrize(
    ("starts", "beyond"),
    [
        ((0.25, 0.25, 0.25), 100.0),
        ((0.25, 0.45, 0.25), 100.0),  # one start was held up
        ((0.45, 0.25, 0.45), None),
    ],
)
def test_what_is_left_beyond_the_start(monkeypatch, starts, beyond):
    seconds = {"walk": [10.2] * 3, "gdb": [0.2] * 3, "start": list(starts), "ours": [0.35] * 3}
    run = lambda job, *_: measuring.Run(seconds[job.name].pop(), 1, 0, 0)  # noqa: E731
    monkeypatch.setattr(measuring, "run_job", run)
    given = {"walk": "gdb", "gdb": "", "start": "", "ours": "start"}
    jobs = [measuring.Job(name, start=start) for name, start in given.items()]
    found = measuring.compare(jobs, 3, CHECKOUT, CHECKOUT)[-1].beyond_start
    assert found == (beyond and pytest.approx(beyond))
