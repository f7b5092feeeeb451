"""The page of ``fleet report`` in a real Chromium: its figures are the document's, nothing runs that should not."""

from __future__ import annotations

from itertools import cycle

import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")

from gdbext.render.page.fleetpage import fleet_page  # noqa: E402
from tests.support.browser import Unavailable, asked_for, axe_core, browser  # noqa: E402
from tests.unit.render.page.test_page import HOSTILE, hostile  # noqa: E402

DAY = 86400
FIRST = 20000 * DAY


def document():
    """Return a document with every section."""
    seen = {"first": FIRST, "last": FIRST + DAY, "program": "server", "host": "h1", "build_id": "b1", "example": "/c 1"}
    cause = {**seen, "signature": "1-a", "cause": "SIGSEGV in f", "cores": 2, "hosts": 1, "builds": 1, "new": True,
             "first_build": "b1", "last_build": "b1"}  # fmt: skip
    worst = {**seen, "time": FIRST, "bytes": 4096, "type": "T"}
    totals = {"cores": 4, "failed": 1, "with_cause": 2, "partial": 0, "signatures": 1, "hosts": 1, "programs": 1,
              "builds": 1, "first": FIRST, "last": FIRST + DAY}  # fmt: skip
    bars = [{"time": FIRST, "cores": 3, "causes": 1, "failed": 1}, {"time": FIRST + DAY, "cores": 1, "causes": 1,
                                                                    "failed": 0}]  # fmt: skip
    data = {
        "target": "crashes", "totals": totals, "since": FIRST, "rate": {"unit": "day", "seconds": DAY, "bars": bars},
        "causes": [cause, {**cause, "cores": 1, "cause": "leak of T", "new": False}], "new": [cause], "new_causes": 1,
        "memory": [worst], "leaks": [worst], "builds": [{**seen, "cores": 4, "signatures": 1}],
        "hosts": [{**seen, "cores": 4, "signatures": 1, "failed": 1}],
        "failures": [{"kind": "bad-core", "cores": 1, "message": "cut", "example": "/c"}],
        "problems": [{"kind": "absent-memory", "corruption": False, "cores": 1, "message": "gone"}],
    }  # fmt: skip
    return {"schema": "gdbext/fleet-report/1", "tool": {"name": "gdbext", "version": "1"}, "data": data, "cut": {}}


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    try:
        with browser(tmp_path_factory.mktemp("pages")) as started:
            yield started
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def show(chromium, tmp_path):
    """A function: opens the page of a document; when the test ends, nothing was asked for but that file."""
    path = tmp_path / "page.html"

    def open_page(made):
        path.write_text(fleet_page(made), encoding="utf-8")
        chromium.get(path.as_uri())
        return chromium

    asked_for(chromium)
    chromium.get_log("browser")
    yield open_page
    assert chromium.get_log("browser") == []
    assert set(asked_for(chromium)) == {path.as_uri()}


def cells(page, table):
    rows = "[...document.getElementById(arguments[0]).tBodies[0].rows]"
    return page.execute_script(f"return {rows}.map(r => [...r.cells].map(c => c.innerText))", table)


def test_figures_tables_and_the_picture(show):
    page = show(document())
    verdict = "4 cores, 1 distinct signature; 1 cause new since 2024-10-04 00:00; 1 without an answer"
    assert page.find_element("id", "verdict").text == verdict
    rows = cells(page, "causes-table")
    assert [row[:4] for row in rows] == [["2", "SIGSEGV in f", "server", "yes"], ["1", "leak of T", "server", "no"]]
    assert rows[0][-1] == "gdbext triage '/c 1'"
    page.find_element("css selector", "#causes-table th button").click()
    page.find_element("css selector", "#causes-table th button").click()
    assert [row[0] for row in cells(page, "causes-table")] == ["1", "2"]
    heights = "return [...document.querySelectorAll('#rate-chart .column')].map(c => c.getBoundingClientRect().height)"
    three, one = page.execute_script(heights)
    assert three == pytest.approx(3 * one, rel=0.01)


def test_without_javascript(show, chromium):
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page = show(document())
        assert page.find_element("id", "rate-chart").is_displayed()
        assert not page.find_element("id", "save").is_displayed()
        assert [cell.text for cell in page.find_elements("css selector", "#hosts-table td")][:3] == ["h1", "4", "1"]
    finally:
        chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_nothing_hostile_runs(show):
    page = show(hostile(document(), cycle([text[:4000] for text in HOSTILE])))
    page.execute_script("document.querySelectorAll('th button').forEach(one => one.click())")
    assert page.execute_script("return document.querySelectorAll('img, iframe, main script, svg script').length") == 0
    assert page.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")


def test_axe_finds_no_fault(show):
    try:
        script = axe_core()
    except Unavailable as reason:
        pytest.skip(str(reason))
    page = show(document())
    page.execute_cdp_cmd("Runtime.evaluate", {"expression": script})  # the page's own policy allows no other script
    found = page.execute_async_script(
        "const done = arguments[0]; axe.run().then(r => done(r.violations), e => done([{id: String(e)}]))"
    )
    assert [f"{one['id']}: {[node['target'] for node in one.get('nodes', ())]}" for one in found] == []
