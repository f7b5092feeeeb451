"""``compare`` over cores and processes of a program that says what it holds after each of its steps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import gdbext
from gdbext.analysis.growth.census import Ageing, count_blocks
from gdbext.analysis.growth.measure import Depth, measure_sample
from gdbext.analysis.growth.report import Of, compare
from gdbext.analysis.growth.sampletext import read_sample, sample_text
from gdbext.recording.journal import Journal
from tests.support.cache import CHECKOUT
from tests.support.growing import cores, running
from tests.support.rest import wait_until
from tests.unit.render.page.pages import data_of, read_page, rows_of

MIB = 1 << 20
SESSION = 248  # bytes that the program asks for, and malloc gives


def run(*arguments, status, command="compare"):
    line = [sys.executable, "-m", "gdbext.cli", command, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
    done = subprocess.run(line, capture_output=True, text=True, timeout=240, env=environment)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == status, done.stdout + done.stderr
    return done


@contextmanager
def started(*arguments, place):
    """Have the command run, with its own files below a folder."""
    line = [sys.executable, "-m", "gdbext.cli", "compare", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "TMPDIR": str(place)}
    with subprocess.Popen(line, stdout=-1, stderr=-1, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def is_waiting(process, place):
    """Whether it has taken a sample, and sleeps."""
    assert process.poll() is None, process.communicate()
    taken = list(place.glob("*/kept-*/sample.json")) and not list(place.glob("*/run-*"))
    return taken and Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def asked(*arguments, status, command="compare"):
    return json.loads(run(*arguments, "--json", status=status, command=command).stdout)


def rows(document, kind):
    return {row["key"]: row for row in document["data"]["changes"] if row["kind"] == kind}


def record(what, count=10, seed=1):
    """Return the answer over samples of a process, one behind each step, as if they were two seconds apart."""
    samples, every = [], []
    with running(what, seed) as here:
        for _ in range(count):
            here.step()
            with gdbext.open_process(here.process.pid) as session:
                samples.append(measure_sample(session, Depth.TYPES))
                every.append(count_blocks(session.heaps()))
    samples = [replace(one, time=1e9 + 2 * at) for at, one in enumerate(samples)]
    known = Of(Ageing(every).exchange(), Ageing(every).ages())
    return compare(samples, [f"sample {at}" for at in range(count)], known)


@pytest.fixture(scope="module")
def leaking(tmp_path_factory):
    """Cores of a list that grows, beside a cache that fills and traffic that comes and goes."""
    return cores(tmp_path_factory.mktemp("leaking"), "list,cache,traffic", range(6))


def test_a_list_that_grows_is_first_with_its_type_and_path(leaking):
    document = asked(*leaking, status=1)
    finding, *others = document["data"]["findings"]
    assert (finding["kind"], finding["severity"]) == ("growth", "warning")
    assert "struct session" in finding["summary"] and "global sessions of growing" in finding["details"]["kept_by"]
    assert not any(one["severity"] == "warning" for one in others)
    step = MIB // SESSION
    row = rows(document, "type")["struct session"]
    assert (row["before_count"], row["now_count"]) == (step, 6 * step)
    assert finding["bytes"] == row["change"] == 5 * step * SESSION
    assert document["data"]["one_process"]
    ages = {row["since"]: row for row in document["data"]["ages"] if row["group"] == "struct session"}
    assert {since: row["blocks"] for since, row in ages.items()} == dict.fromkeys(range(1, 7), step)
    text = run(*leaking[:2], status=0).stdout
    assert "2 samples cannot tell growth from a start" in text and max(map(len, text.splitlines())) <= 100


@pytest.mark.full
def test_its_twin_gives_no_warning(tmp_path):
    document = asked(*cores(tmp_path, "cache,traffic", range(6)), status=0)
    assert not any(one["severity"] == "warning" for one in document["data"]["findings"])


def test_two_runs_are_compared_by_names_and_not_by_addresses(leaking, tmp_path):
    (other,) = cores(tmp_path, "list,cache,traffic", [4], seed=2)
    document = asked(leaking[0], other, status=0)
    assert not document["data"]["one_process"] and document["data"]["blocks"] == []
    step = MIB // SESSION
    assert rows(document, "type")["struct session"]["change_count"] == 4 * step
    assert rows(document, "root")["global sessions of growing"]["change"] == 4 * step * SESSION
    assert not any("0x" in key for key in rows(document, "arena"))


def shown(tree, table):
    """Return the exact figures of a table of a page, None where they are not known."""
    return [[int(cell) if cell else None for cell, _ in row if cell is not None] for row in rows_of(tree, table)]


def check_figures(document, tree):
    """Check that a page's tables and lines have what ``compare --json`` says, and no figure that it does not."""
    series = {(row["kind"], row["key"]): row for row in document["data"]["series"]}
    owners = sorted(
        (row for (kind, _), row in series.items() if kind == "owner" and any(row["bytes"])),
        key=lambda row: -max(value or 0 for value in row["bytes"]),
    )
    drawn = [series["total", "memory"], *owners[:8]]
    every = [[at + 1, *(row["bytes"][at] for row in drawn)] for at in range(len(document["data"]["samples"]))]
    assert shown(tree, "growth-owners-figures") == every
    paths = [path["d"] for path in tree.one("svg", id="growth-owners").all("path") if path.get("class") is None]
    assert [path.count("M") + path.count("L") for path in paths] == [
        sum(value is not None for value in row["bytes"]) for row in drawn
    ]
    fields = ("before", "now", "change", "per_hour", "before_count", "now_count", "change_count")
    known = {tuple(row[field] for field in fields) for row in document["data"]["changes"]}
    assert {tuple(row) for row in shown(tree, "changes")} <= known


def test_the_page_of_several_cores_has_the_figures_of_compare(leaking, tmp_path):
    pytest.importorskip("jinja2", reason="Jinja2 is not installed")
    compared, page = asked(*leaking[::2], status=0), tmp_path / "page.html"
    report = asked(*leaking[::2], "-o", page, status=0, command="report")
    assert report["data"]["growth"] == compared["data"]
    assert report["data"]["verdict"].startswith("No findings, but more than before; 3 samples cannot tell growth")
    tree = read_page(page.read_text())
    check_figures(compared, tree)
    assert {one.one("h3").text.split()[1] for one in tree.all("article")} == {"growth"}
    sessions = [row[:2] for row in shown(tree, "growing-figures")]
    assert sessions == [[at + 1, (2 * at + 1) * (MIB // SESSION) * SESSION] for at in range(3)]
    assert report["data"]["summary"]["totals"]["used_blocks"] == compared["data"]["samples"][-1]["used_blocks"]


def test_the_page_of_a_recording_leaves_out_what_a_sample_lacks(tmp_path):
    pytest.importorskip("jinja2", reason="Jinja2 is not installed")
    folder, page = tmp_path / "recorded", tmp_path / "page.html"
    journal = Journal(str(folder))
    with running("list") as here:
        for at in range(4):
            here.step()
            with gdbext.open_process(here.process.pid) as session:
                one = measure_sample(session, Depth.SIZES)
            kept = {kind: rows for kind, rows in one.rows.items() if at != 2 or kind != "owner"}
            whole = replace(one, time=1e9 + 60 * at, rows=kept, complete=at != 2)
            assert journal.add_sample(sample_text(whole))
    journal.close()
    compared = asked(folder, status=3)
    report = asked(folder, "-o", page, status=3, command="report")
    assert report["data"]["growth"] == compared["data"] and report["data"]["triage"]["ledger"] is None
    tree = read_page(page.read_text())
    check_figures(compared, tree)
    (lacking,) = [row for row in shown(tree, "growth-owners-figures") if row[0] == 3]
    assert set(lacking[2:]) == {None}
    assert "growing" in tree.one("h1").text and [one["id"] for one in tree.all("section")] == [
        "findings", "growth", "evidence"
    ]  # fmt: skip
    refused = run(folder, "-o", folder / "samples.jsonl", status=2, command="report")
    assert "names the recording itself" in refused.stderr
    run(folder, "-o", page, "--redact", status=3, command="report")
    assert "growing" not in data_of(read_page(page.read_text()))["data"]["target"]


def test_in_gdb_what_is_selected_is_the_last_sample(leaking, tmp_path):
    out = tmp_path / "answer.json"
    script = f"gx compare {leaking[0]} {leaking[1]} --json={out}"
    line = [
        "gdb",
        "-nx",
        "-q",
        "-batch",
        "-iex",
        "set debuginfod enabled off",
        "-ex",
        f"source {CHECKOUT}/gdbext/load.py",
    ]
    done = subprocess.run(
        [*line, "-ex", f"core-file {leaking[3]}", "-ex", script], capture_output=True, text=True, timeout=120
    )
    document = json.loads(out.read_text())
    step = MIB // SESSION
    assert rows(document, "size")[str(SESSION)]["now_count"] > 4 * step, done.stderr
    blocks = {row["blocks_are"]: row["blocks"] for row in document["data"]["blocks"]}
    assert blocks["new"] >= 3 * step and blocks["kept"] >= step
    assert [row["source"] for row in document["data"]["samples"]] == ["core.0", "core.1", "core.3"]


def test_a_process_and_files_of_samples(tmp_path):
    files = [tmp_path / "one.sample", tmp_path / "two.sample"]
    with running("list") as here:
        for file in files:
            here.step()
            with gdbext.open_process(here.process.pid) as session:
                file.write_text(sample_text(measure_sample(session, Depth.SIZES)) + "\n")
        limited = asked(files[0], "--pid", here.process.pid, "--memory-limit", "1G", status=0)
        sampled = asked("--pid", here.process.pid, "--every", "0.1s", "--times", 2, status=0)
    step = MIB // SESSION
    assert rows(limited, "size")[str(SESSION)]["change_count"] == step
    (limit,) = (row for row in limited["data"]["limits"] if row["limit"] == "--memory-limit")
    assert limit["bytes"] == 1 << 30 and limit["seconds"] > 0
    assert rows(sampled, "type")["struct session"]["change_count"] == 0
    assert sampled["data"]["findings"] == [] and sampled["data"]["samples"][1]["seconds"] >= 0.1
    assert sampled["data"]["samples"][0]["held"] > 0 and sampled["held_seconds"] > 0
    files[1].write_text(files[0].read_text() + files[1].read_text())
    alone = asked(*files, status=0)
    assert [row["source"] for row in alone["data"]["samples"]] == ["one.sample", "two.sample:1", "two.sample:2"]
    assert rows(alone, "size")[str(SESSION)]["change_count"] == step
    assert read_sample(files[0].read_text().rstrip("\n")).process.program == "growing"


def test_what_was_sampled_until_ctrl_c_is_compared(tmp_path):
    file, answer = tmp_path / "one.sample", tmp_path / "answer.json"
    with running("list") as here:
        for _ in range(2):
            here.step()
            with gdbext.open_process(here.process.pid) as session:
                file.write_text(sample_text(measure_sample(session, Depth.SIZES)))
        here.step()
        line = [file, "--pid", here.process.pid, "--every", "1h", "--times", 3, f"--json={answer}"]
        with started(*line, place=tmp_path) as process:
            wait_until(lambda: is_waiting(process, tmp_path), "it waits for its last sample")
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        assert here.process.poll() is None
    document = json.loads(answer.read_text())
    assert process.returncode == 0 and "stopped; the answer is of the 2 samples until then" in err
    assert len(document["data"]["samples"]) == 2 and document["data"]["one_process"]
    assert rows(document, "size")[str(SESSION)]["change_count"] == MIB // SESSION


def test_one_sample_until_ctrl_c_is_no_answer(tmp_path):
    with running("list") as here:
        line = ["--pid", here.process.pid, "--every", "1h", "--times", 3]
        with started(*line, place=tmp_path) as process:
            wait_until(lambda: is_waiting(process, tmp_path), "it waits for its second sample")
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT and out == "" and "stopped before there was an answer" in err


GROWING = {
    "lost,cache": ("growth", "nothing points at them"),
    "table,linear": ("growth", "blocks of"),
    "rising,tide": ("growth", f"blocks of {SESSION} bytes"),
    "threads,traffic": ("thread-growth", "most of them idler"),
    "arenas,traffic": ("arena-growth", "the number of arenas"),
    "free,cache": ("fragmentation-growth", "free memory of glibc"),
}


@pytest.mark.parametrize("what", GROWING)
def test_what_grows_is_first_within_ten_samples(what):
    kind, said = GROWING[what]
    found = record(what, 9).data.findings[0]
    assert (found.kind, found.severity.value) == (kind, "warning") and said in found.summary


@pytest.mark.parametrize("what", ["cache,traffic", "jump,linear", "crew,tide"])
def test_twins_give_no_warning(what):
    assert not record(what).findings


@pytest.mark.full
@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("what", ["cache,traffic", "linear,tide", "tide", "traffic", "cache,crew,jump"])
def test_twins_never_give_a_warning(what, seed):
    report = record(what, seed=seed + 2)
    assert not report.findings, report.data.findings


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "two targets or more are needed"),
        (["--every", "1s", "--times", "3"], "--every and --times need --pid"),
        (["/nowhere", "/nothing"], "/nowhere"),
        (["/proc/self/task"], "/proc/self/task is no recording: it has no samples.jsonl"),
    ],
)
def test_what_is_wrong_is_said(arguments, said):
    done = run(*arguments, status=2)
    assert said in done.stderr and done.stdout == ""


def test_other_programs_are_not_compared(leaking, tmp_path):
    with running("list") as here, gdbext.open_process(here.process.pid) as session:
        text = sample_text(measure_sample(session, Depth.SIZES))
    other = tmp_path / "other.sample"
    other.write_text(text.replace('"growing"', '"shrinking"'))
    assert "these are different programs" in run(other, leaking[0], status=2).stderr
    other.write_text(text[:-9])
    assert "this is no sample" in run(other, leaking[0], status=2).stderr
