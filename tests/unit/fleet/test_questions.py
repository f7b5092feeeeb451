"""The questions of the guide and of commands, over rows whose answers were worked out by hand."""

from __future__ import annotations

import datetime
import re
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from gdbext.errors import GdbextError, UsageError
from gdbext.fleet import child
from gdbext.fleet.asking import Dataset
from gdbext.fleet.kinds import KINDS
from gdbext.fleet.metrics import metrics_text
from gdbext.fleet.questions import NEW, TOP, parse_span

from . import made

ROOT = Path(__file__).resolve().parents[3]
GUIDE = (ROOT / "docs" / "fleet.md").read_text(encoding="utf-8")
QUESTIONS = re.findall(r"^([^\n]*):\n\n```sql\n(.*?)```", GUIDE, re.MULTILINE | re.DOTALL)
DAY = 86400
FIRST = 20000 * DAY  # 2024-10-04
SERVER = {"program": "server", "signal": "SIGSEGV", "signature": "1-a", "cause": "SIGSEGV in f", "status": 1}
LEAK = {"signature": "1-b", "kind": "leak", "cause": "leak of T", "words": "[]"}
CRASH = {"rank": 0, "signature": "1-a", "kind": "crash", "cause": "SIGSEGV in f", "words": "[]"}
CORES = [
    ("c1", {**SERVER, "host": "h1", "build_id": "b1", "time": FIRST, "cpu_seconds": 1.0, "peak_bytes": 10}, {
        "causes": [CRASH, {**LEAK, "rank": 1}],
        "leak_groups": [{"type": "T", "kept_bytes": 10}],
        "types": [{"name": "T", "bytes": 100}],
        "problems": [{"kind": "absent-memory", "message": "x is gone", "corruption": False}],
        "heaps": [{"allocator": "glibc", "used_bytes": 100, "free_bytes": 50}],
        "locks": [{"name": "queue", "primitive": "mutex", "waiters": 3}],
        "threads": [{"number": 1, "lock": 1 << 63, "frame": "work"}, {"number": 2, "lock": 5, "frame": "work"}],
    }),
    ("c2", {**SERVER, "host": "h2", "build_id": "b2", "time": FIRST + DAY, "cpu_seconds": 2.0, "peak_bytes": 30}, {
        "causes": [CRASH],
        "types": [{"name": "T", "bytes": 200}],
        "problems": [{"kind": "chunk-size", "message": "damage", "corruption": True}],
        "heaps": [{"allocator": "glibc", "used_bytes": 100, "free_bytes": 150}],
        "locks": [{"name": "queue", "primitive": "mutex", "waiters": 5}],
        "threads": [{"number": 1, "lock": 7, "frame": "work"}],
    }),
    ("c3", {**SERVER, "signal": None, **{key: LEAK[key] for key in ("signature", "cause")}, "host": "h1",
            "build_id": "b2", "time": FIRST + DAY + 5, "cpu_seconds": 3.0, "peak_bytes": 20}, {
        "causes": [{**LEAK, "rank": 0}],
        "leak_groups": [{"type": "T", "kept_bytes": 300}, {"type": "U", "kept_bytes": 5}],
        "types": [{"name": "T", "bytes": 400}],
        "threads": [{"number": 1, "frame": "idle"}],
    }),
    ("c4", {"program": "tool", "time": FIRST, "status": 3, "cpu_seconds": 0.5, "peak_bytes": 1}, {
        "problems": [{"kind": "absent-memory", "message": "a is gone", "corruption": False}],
        "heaps": [{"allocator": "jemalloc", "used_bytes": 10, "free_bytes": 0}],
    }),
    ("c5", {"time": FIRST, "status": 2, "error_kind": "bad-core", "error": "no core"}, {}),
    ("c6", {"time": FIRST, "status": 2, "error_kind": "timeout", "error": "late"}, {}),
    ("c7", {"time": FIRST, "status": 2, "error_kind": "bad-core", "error": "cut short"}, {}),
]  # fmt: skip
T1, T2 = (str(datetime.datetime(2024, 10, day)) for day in (4, 5))
ANSWERS = {
    "Which build brought a cause": [["1-a", "SIGSEGV in f", "b1", "b2"], ["1-b", "leak of T", "b2", "b2"]],
    "Which hosts have it": [["1-a", "h1", 1], ["1-a", "h2", 1], ["1-b", "h1", 1]],
    "How often a day": [["1-a", "2024-10-04", 1], ["1-a", "2024-10-05", 1], ["1-b", "2024-10-05", 1]],
    "The ten worst leaks": [["server", "T", 2, 300, "/c3"], ["server", "U", 1, 5, "/c3"]],
    "Which types take more": [["server", "T", "b1", 100, T1], ["server", "T", "b2", 300, T2]],
    "What could not be examined": [["bad-core", 2, "cut short"], ["timeout", 1, "late"]],
    "What of the others": [["absent-memory", 2, "a is gone"]],
    "Whose heaps are damaged": [["server", "chunk-size", 1]],
    "How much of each": [["server", "glibc", 200, 200, 0.5], ["tool", "jemalloc", 10, 0, 0.0]],
    "Which locks": [["server", "queue", "mutex", 5, 2]],
    "Where threads wait": [["server", "work", 3, 2]],
    "Which causes come with": [["SIGSEGV in f", "leak of T", 1]],
    "What cores cost": [["server", 3, 2.0, 30], ["tool", 1, 0.5, 1]],
}

pytestmark = pytest.mark.skipif(not (find_spec("pyarrow") and find_spec("duckdb")), reason="needs pyarrow and duckdb")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet") / "data"
    made.put(folder, CORES)
    return str(folder)


def asked(dataset, questions):
    """Return the rows of queries with their parameters, asked in a process of their own."""
    return child.run(partial(_asked, dataset, questions))


def _asked(dataset, questions):
    opened = Dataset(dataset)
    return [[[_simple(value) for value in row] for row in opened.ask(text, values).rows] for text, values in questions]


def _simple(value):
    return value if value is None or isinstance(value, (int, float, str)) else str(value)


def test_the_questions_of_the_guide_have_these_answers(dataset):
    assert len(QUESTIONS) >= 12
    answers = asked(dataset, [(text, ()) for _, text in QUESTIONS])
    known = {next(lead for lead in ANSWERS if title.startswith(lead)): answer
             for (title, _), answer in zip(QUESTIONS, answers)}  # fmt: skip
    assert known == ANSWERS


def test_top_counts_each_core_once(dataset):
    (rows,) = asked(dataset, [(TOP, [99])])
    assert rows == [
        [2, 2, 2, "2024-10-04 00:00", "2024-10-05 00:00", "1-a", "server", "SIGSEGV in f"],
        [1, 1, 1, "2024-10-05 00:00", "2024-10-05 00:00", "1-b", "server", "leak of T"],
        [2, 0, 0, "2024-10-04 00:00", "2024-10-04 00:00", None, None, "no answer: bad-core"],
        [1, 0, 0, "2024-10-04 00:00", "2024-10-04 00:00", None, "tool", "nothing found"],
        [1, 0, 0, "2024-10-04 00:00", "2024-10-04 00:00", None, None, "no answer: timeout"],
    ]
    assert sum(row[0] for row in rows) == len(CORES)


def test_a_cause_is_new_when_its_first_core_is(dataset):
    all_, some, none = asked(dataset, [(NEW, [since]) for since in (FIRST, FIRST + 1, FIRST + 9 * DAY)])
    # The leak was seen on the first day already, beside a crash.
    assert [row[3] for row in all_] == ["1-a", "1-b"] and not some and not none
    assert all_[0] == [2, 2, "2024-10-04 00:00", "1-a", "server", "SIGSEGV in f", "/c1"]


def test_a_query_that_is_wrong_says_so_and_nothing_is_fetched(dataset):
    with pytest.raises(GdbextError, match="nowhere"):
        asked(dataset, [("SELECT * FROM nowhere", ())])
    with pytest.raises(GdbextError, match="(?i)extension"):
        asked(dataset, [("SELECT * FROM read_parquet('https://127.0.0.1:9/x.parquet')", ())])


def test_figures_for_prometheus(dataset):
    text = child.run(partial(metrics_text, dataset, {"seconds": 1.5}))
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert samples == [
        'gdbext_fleet_cores{program="",status="2"} 3',
        'gdbext_fleet_cores{program="server",status="1"} 3',
        'gdbext_fleet_cores{program="tool",status="3"} 1',
        'gdbext_fleet_cause_cores{signature="1-a",program="server",cause="SIGSEGV in f"} 2',
        'gdbext_fleet_cause_cores{signature="1-b",program="server",cause="leak of T"} 1',
        f"gdbext_fleet_newest_core_timestamp_seconds {float(FIRST + DAY + 5)}",
        "gdbext_fleet_run_seconds 1.5",
    ]
    assert all(line.startswith(("# HELP gdbext_", "# TYPE gdbext_")) for line in text.splitlines() if line[0] == "#")


def test_every_kind_is_a_table_in_the_guide():
    named = set(re.findall(r"`(\w+)`", GUIDE[GUIDE.index("| table | a row is |") : GUIDE.index("`dataset.json` and")]))
    assert named >= {kind.name for kind in KINDS}
    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    section = page[page.index("## Rows of a dataset") : page.index("## Exit status")]
    assert all(f"| `{kind.name}` |" in section or f"#### Table `{kind.name}`" in section for kind in KINDS)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("5m", 300), ("36h", 129600), ("1d", DAY), ("2w", 14 * DAY)]
)
def test_spans(text, seconds):
    assert parse_span(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "d", "1 day", "-1d", "1.5d"])
def test_what_is_no_span(text):
    with pytest.raises(UsageError):
        parse_span(text)
