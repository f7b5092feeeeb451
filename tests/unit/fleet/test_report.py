"""The page about a dataset: its figures are what plain SQL gives, and nothing that a core names runs or escapes."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import partial
from importlib.util import find_spec
from itertools import cycle

import pytest

from gdbext.fleet import child
from gdbext.fleet.asking import Dataset
from tests.unit.render.page.pages import data_of, read_page, rows_of
from tests.unit.render.page.test_page import HOSTILE, hostile

from . import made
from .test_questions import CORES, DAY, FIRST

NEEDED = ("pyarrow", "duckdb", "jinja2")
pytestmark = pytest.mark.skipif(not all(map(find_spec, NEEDED)), reason=f"needs {', '.join(NEEDED)}")
SINCE = FIRST - DAY
MEMORY = {
    "mappings": [{"owner": "glibc", "in_core": 70}, {"owner": "files", "in_core": 7}, {"owner": "gone"}],
    "leak_groups": [{"type": "T", "bytes": 4, "kept_bytes": 5}, {"type": "U", "bytes": 3, "kept_bytes": 9}],
}
MORE = ("c8", {"program": "server", "host": "h3", "time": FIRST + 3 * DAY, "status": 0}, MEMORY)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet") / "data"
    made.put(folder, [*CORES, MORE])
    return str(folder)


def document_of(dataset, since=SINCE, rows=200):
    return child.run(partial(_document, dataset, since, rows))


def _document(dataset, since, rows):
    from gdbext.fleet.overview import make_document

    return make_document(Dataset(dataset), "crashes", since, rows)


def page_of(document, redact=False):
    from gdbext.render.page.fleetpage import fleet_page

    return fleet_page(document, redact)


@pytest.fixture(scope="module")
def tree(dataset):
    return read_page(page_of(document_of(dataset)))


def asked(dataset, *texts):
    return child.run(lambda: [[list(row) for row in Dataset(dataset).ask(text).rows] for text in texts])


def exact(tree, table, *columns):
    """Return cells of a table: the exact value where a cell has one, else its text; None where that is not known."""
    cells = [[_cell(*row[at]) for at in columns] for row in rows_of(tree, table)]
    return [[None if cell == "–" else cell for cell in row] for row in cells]


def _cell(value, text):
    return text if value is None else float(value or 0)


def test_figures_are_those_of_sql(dataset, tree):
    totals, causes, hosts, builds, days, memory, leaks, failures, problems = asked(
        dataset,
        "SELECT count(*), sum(CAST(status = 2 AS INT)), count(DISTINCT signature), count(DISTINCT host) FROM cores",
        "SELECT count(*), cause, program, count(DISTINCT host), count(DISTINCT build_id), min(time), max(time), "
        "signature FROM cores WHERE signature NOT NULL GROUP BY ALL ORDER BY 1 DESC, 8",
        "SELECT host, count(*), sum(CAST(status = 2 AS INT)) FROM cores WHERE host NOT NULL GROUP BY 1 "
        "ORDER BY 2 DESC, 1",
        "SELECT program, build_id, count(*) FROM cores WHERE program NOT NULL GROUP BY ALL ORDER BY 3 DESC, 1, 2",
        "SELECT epoch(date_trunc('hour', taken)), count(*), count(signature) FROM cores GROUP BY 1 ORDER BY 1",
        "SELECT CAST(sum(in_core) AS BIGINT), program FROM mappings JOIN cores USING (core) GROUP BY core, program",
        "SELECT CAST(sum(bytes) AS BIGINT), program FROM leak_groups JOIN cores USING (core) GROUP BY core, program "
        "HAVING sum(bytes) > 0 ORDER BY 1 DESC",
        "SELECT error_kind, count(*) FROM cores WHERE status = 2 GROUP BY 1 ORDER BY 2 DESC, 1",
        "SELECT kind, count(DISTINCT core) FROM problems GROUP BY 1, corruption ORDER BY corruption DESC, 2 DESC",
    )
    shown = [tree.one("dd", id=f"total-{name}")["data-value"] for name in ("cores", "failed", "signatures", "hosts")]
    assert [shown] == [[str(one) for one in row] for row in totals]
    assert exact(tree, "causes-table", 0, 1, 2, 4, 5, 6, 7, 10) == causes
    assert exact(tree, "hosts-table", 0, 1, 2) == hosts
    assert exact(tree, "builds-table", 0, 1, 2) == builds
    assert exact(tree, "rate-table", 0, 1, 2) == days
    assert exact(tree, "memory-table", 0, 1) == memory == [[77, "server"]]
    assert exact(tree, "leaks-table", 0, 2) == leaks == [[7, "server"]]
    assert exact(tree, "failures-table", 0, 1) == failures
    assert exact(tree, "problems-table", 0, 2) == problems


def test_the_verdict_and_what_is_new(dataset, tree):
    verdict = "8 cores, 2 distinct signatures; 2 causes new since 2024-10-03 00:00; 3 without an answer"
    assert tree.one("span", id="verdict").text == verdict
    assert exact(tree, "new-table", 0, 1, 4) == [[2, "SIGSEGV in f", FIRST], [2, "leak of T", FIRST]]
    later = read_page(page_of(document_of(dataset, FIRST + 1)))
    assert "; 0 causes new since 2024-10-04 00:00;" in later.one("span", id="verdict").text
    assert (
        not list(later.all("table", id="new-table"))
        and [row[3][1] for row in rows_of(later, "causes-table")] == ["no"] * 2
    )


def test_a_cause_has_a_command_to_go_on_with(tree):
    assert exact(tree, "causes-table", 11) == [["gdbext triage /c2"], ["gdbext triage /c3"]]


def test_columns_over_time_are_to_scale(tree):
    bars = list(tree.one("svg", id="rate-chart").all("g", class_="column"))
    assert [bar["data-value"] for bar in bars] == ["5", "2", "1"]
    assert sum(float(rect["height"]) for rect in bars[0].all("rect")) == 160
    assert sum(float(rect["height"]) for rect in bars[1].all("rect")) == 64
    assert [float(next(bar.all("rect"))["x"]) for bar in bars] == [0, pytest.approx(1000 * 24 / 73, abs=0.01),
                                                                  pytest.approx(1000 * 72 / 73, abs=0.01)]  # fmt: skip


def test_lists_are_cut_and_say_so(dataset):
    tree = read_page(page_of(document_of(dataset, rows=1)))
    assert len(rows_of(tree, "causes-table")) == 1 and "The first rows of 2" in tree.one("section", id="causes").text


def test_an_empty_dataset_has_a_page(tmp_path):
    made.put(tmp_path / "data", [])
    tree = read_page(page_of(document_of(str(tmp_path / "data"))))
    assert tree.one("span", id="verdict").text.startswith("0 cores, 0 distinct signatures; 0 causes new")


def test_nothing_hostile_runs_or_escapes(dataset):
    names = cycle([text[:4000] for text in HOSTILE])
    text = page_of(hostile(document_of(dataset), names))
    tree = read_page(text)
    assert [node.name for node in tree.all("script")] == ["script", "script"] and not list(tree.all("img"))
    assert all(not key.startswith("on") for node in tree.all() for key in node.attributes)
    assert not set("\x00\x07\x1b\u202e") & set(tree.one("main").text)


def test_the_policy_allows_the_page_and_nothing_else(dataset, tree):
    text = page_of(document_of(dataset))
    policy = tree.one("meta", **{"http-equiv": "Content-Security-Policy"})["content"]
    for name, element in (("script-src", "script"), ("style-src", "style")):
        (only,) = re.findall(f"<{element}>(.*?)</{element}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(only.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert not any(key in ("style", "src") for node in tree.all() for key in node.attributes)
    ids = [node["id"] for node in tree.all() if "id" in node.attributes]
    assert len(set(ids)) == len(ids) and {link["href"][1:] for link in tree.all("a")} <= set(ids)


def test_a_redacted_page_has_no_text_of_a_target(dataset):
    document = document_of(dataset)
    tree = read_page(page_of(document, redact=True))
    shown = tree.one("body").text.replace(tree.one("body").children[-2].text, "")
    for word in ("crashes", "server", "SIGSEGV in f", "leak of T", "h1", "h2", "/c2", "a is gone", "cut short", "b1"):
        assert word in json.dumps(document) and word not in shown, word
    assert tree.one("span", id="verdict").text.startswith("8 cores, 2 distinct signatures; 2 causes new since")
    assert exact(tree, "causes-table", 0) == [[2], [1]] and data_of(tree)["data"]["rate"]["unit"] == "hour"
    assert [row[0] for row in exact(tree, "failures-table", 0)] == ["bad-core", "timeout"]
    assert json.dumps(data_of(tree)).count("program 1") >= 3
