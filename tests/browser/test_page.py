"""The page of ``report`` in a real Chromium, opened from disk: nothing fails, nothing leaves, everything answers."""

from __future__ import annotations

import json
import time
from itertools import cycle
from pathlib import Path

import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")

from gdbext.render.page.page import page_of  # noqa: E402
from tests.support.browser import Unavailable, asked_for, axe_core, browser  # noqa: E402
from tests.unit.render.page.test_page import HOSTILE, document, hostile  # noqa: E402

SIZES = {"wide": (1280, 900), "narrow": (390, 844)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def chromium(folder):
    try:
        with browser(folder) as started:
            yield started
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def show(chromium, folder):
    """A function: opens the page of a document; when the test ends, nothing was asked for but that file."""
    opened = []

    def open_page(made, size="wide", scheme="light"):
        width, height = SIZES[size]
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "narrow"}
        chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        path = folder / f"page-{len(opened)}.html"
        path.write_text(page_of(made), encoding="utf-8")
        opened.append(path.as_uri())
        chromium.get(opened[-1])
        return chromium

    asked_for(chromium)
    chromium.get_log("browser")
    yield open_page
    assert chromium.get_log("browser") == []
    assert set(asked_for(chromium)) == set(opened)


def run(page, script, *arguments):
    return page.execute_script(script, *arguments)


def column(page, table, number):
    return run(page, "return [...document.getElementById(arguments[0]).tBodies[0].rows].filter(r => !r.hidden)"
               ".map(r => r.cells[arguments[1]].textContent)", table, number)  # fmt: skip


def rows(count):
    """Return a document whose table of types has so many rows."""
    made = document()
    made["data"]["retained"]["types"] = [
        {"type": f"Type{at}", "retained": at * 1024, "share": 0.1, "own": 7, "blocks": count - at}
        for at in range(count)
    ]
    return made


def test_tables_sort(show):
    page = show(rows(12))
    click = "document.querySelectorAll('#types th button')[arguments[0]].click()"
    run(page, click, 1)
    assert column(page, "types", 0) == [f"Type{at}" for at in reversed(range(12))]
    assert run(page, "return document.querySelectorAll('#types th')[1].getAttribute('aria-sort')") == "descending"
    run(page, click, 1)
    assert column(page, "types", 1)[:3] == ["0 B", "1 KiB", "2 KiB"]
    run(page, click, 0)
    run(page, click, 0)
    assert column(page, "types", 0)[:3] == ["Type0", "Type1", "Type10"]


def test_tables_filter(show):
    page = show(rows(12))
    field = page.find_element("css selector", "#retained .filter input")
    field.send_keys("type1")
    assert column(page, "types", 0) == ["Type1", "Type10", "Type11"]
    field.send_keys("\ue003" * 5)  # Backspace
    assert len(column(page, "types", 0)) == 12


def test_memory_by_owner_zooms(show):
    page = show(document())
    tile = page.find_elements("css selector", "#treemap .tile")
    names = [one.find_element("css selector", "title").get_attribute("textContent") for one in tile]
    files = next(one for one, name in zip(tile, names) if name.startswith("files:"))
    width = "return Number(arguments[0].querySelector('rect').getAttribute('width'))"
    before = run(page, width, files)
    run(page, "arguments[0].dispatchEvent(new MouseEvent('click'))", files)
    assert before < 500 and run(page, width, files) == pytest.approx(1000, abs=0.1)
    assert run(page, "return document.querySelectorAll('#treemap .gone').length") == 3  # glibc and what is in it
    run(page, "arguments[0].dispatchEvent(new MouseEvent('click'))", files)
    assert run(page, width, files) == pytest.approx(before, abs=0.1)
    assert run(page, "return document.querySelectorAll('#treemap .gone').length") == 0


def test_what_roots_keep_zooms_and_is_searched(show):
    page = show(document())
    node = page.find_elements("css selector", "#icicle .node")
    run(page, "arguments[0].focus()", node[3])
    node[3].send_keys("\ue007")  # Enter
    assert run(page, "return document.getElementById('icicle').dataset.zoom") == "Entry"
    assert run(page, "return Number(arguments[0].querySelector('rect').getAttribute('width'))", node[3]) == 1000
    page.find_element("id", "icicle-search").send_keys("cache")
    assert page.find_element("id", "icicle-found").text == "2 of 4"
    assert run(page, "return document.querySelectorAll('#icicle .dim').length") == 2


def test_the_map_names_what_is_below_the_pointer(show):
    page = show(document())
    box = run(page, "const map = document.getElementById('heap_map'); map.scrollIntoView();"
              "const r = map.getBoundingClientRect(); return [r.x, r.y, r.width]")  # fmt: skip
    scale = box[2] / (190 + 128 * 6)
    x, y = box[0] + (190 + 6 * 1.5) * scale, box[1] + 4 * scale
    page.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})
    said = page.find_element("css selector", "#heap output").text
    assert said == "0x12000–0x14000, glibc main brk: free 8 KiB; largest block 3.9 KiB at 0x12010"
    region = page.find_element("css selector", "#heap .map .scroll")
    region.send_keys("\ue014")  # to the right
    said = page.find_element("css selector", "#heap output").text
    assert said.startswith("0x14000–0x16000, glibc main brk: used 8 KiB")


def test_the_map_names_stretches_that_share_a_row(show):
    made = document()
    drawn = made["data"]["heap_map"]
    drawn["parts"] += [{**drawn["parts"][1], "start": "0xa0000", "end": "0xa1000", "first": 4}]
    drawn["cells"] = {"uses": {"used": [1] * 5}, "largest": [None] * 5, "block": [None] * 5}
    page = show(made)
    box = run(page, "const map = document.getElementById('heap_map'); map.scrollIntoView();"
              "const r = map.getBoundingClientRect(); return [r.x, r.y, r.width]")  # fmt: skip
    scale = box[2] / (190 + 128 * 6)
    for cell, address in ((0, "0x90000"), (2, "0xa0000")):
        x, y = box[0] + (190 + 6 * (cell + 0.5)) * scale, box[1] + 18 * scale
        page.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})
        assert page.find_element("css selector", "#heap output").text.startswith(f"{address}–")


def test_lines_name_the_sample_below_the_pointer(show):
    page = show(document())
    region = page.find_element("css selector", "#growth figure:last-of-type .scroll")
    run(page, "arguments[0].scrollIntoView()", region)
    box = run(page, "const r = document.querySelectorAll('#growth-owners .moment')[1].getBoundingClientRect();"
              "return [r.x + r.width / 2, r.y + 20]")  # fmt: skip
    page.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": box[0], "y": box[1]})
    said = "return document.getElementById('growth-owners').closest('figure').querySelector('output').textContent"
    assert run(page, said) == "sample 2, +60 s: all memory 9.8 KiB; glibc in use 5.9 KiB; libc.so.6 3.9 KiB"
    region.send_keys("\ue014")  # to the right
    assert run(page, said).startswith("sample 3, +2 min, not examined to its end: all memory not known")
    at = "document.querySelector('#growth-owners %s')"
    cursor, moment = at % ".cursor", at % ".moment:nth-last-child(2)"
    assert run(page, f"return {cursor}.getAttribute('d').startsWith('M' + {moment}.dataset.at + ' ')")


def test_the_data_can_be_saved(show, folder):
    page = show(document())
    page.find_element("id", "save").click()
    saved, deadline = folder / "report.json", time.monotonic() + 10
    while not saved.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert json.loads(saved.read_text()) == document()
    saved.unlink()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_axe_finds_no_fault(show, size, scheme):
    try:
        script = axe_core()
    except Unavailable as reason:
        pytest.skip(str(reason))
    page = show(document(), size, scheme)
    run(page, "document.querySelectorAll('details').forEach(one => { one.open = true; })")
    page.execute_cdp_cmd("Runtime.evaluate", {"expression": script})  # the page's own policy allows no other script
    found = page.execute_async_script(
        "const done = arguments[0]; axe.run().then(r => done(r.violations), e => done([{id: String(e)}]))"
    )
    assert [f"{one['id']}: {[node['target'] for node in one.get('nodes', ())]}" for one in found] == []


@pytest.mark.parametrize("size", SIZES)
def test_nothing_is_wider_than_the_window(show, size):
    page = show(hostile(document(), cycle(["W" * 300])), size)
    assert run(page, "return document.documentElement.scrollWidth") <= SIZES[size][0]


@pytest.mark.parametrize("first", range(0, len(HOSTILE), 3))
def test_nothing_hostile_runs(show, first):
    page = show(hostile(document(), cycle([text[:4000] for text in HOSTILE[first:] + HOSTILE[:first]])))
    page.find_element("id", "icicle-search").send_keys("a")
    every = "document.querySelectorAll('th button, .tile, .node')"
    run(page, f"{every}.forEach(one => one.dispatchEvent(new MouseEvent('click')))")
    page.find_element("css selector", "#heap .map .scroll").send_keys("\ue014")
    assert run(page, "return document.querySelectorAll('img, iframe, object, main script, svg script').length") == 0
    assert run(page, "return document.title.length") < 200  # an alert would have ended the script


def test_a_large_page_is_soon_usable(show):
    made = rows(200)
    cells, pages = 9000, [at % 3 for at in range(9000)]
    drawn = made["data"]["heap_map"]
    drawn["parts"] = [
        {**drawn["parts"][0], "start": hex(at << 24), "end": hex((at << 24) + 225 * 8192), "first": at * 225,
         "cells": 225} for at in range(40)
    ]  # fmt: skip
    drawn["cells"] = {"uses": {"used": pages, "free": [3 - one for one in pages]}, "largest": [64] * cells,
                      "block": ["0x1000000"] * cells}  # fmt: skip
    begun = time.monotonic()
    page = show(made)
    assert run(page, "return document.documentElement.classList.contains('scripted')")
    assert time.monotonic() - begun < 5  # two seconds on a machine that does nothing else
    ready = run(page, "const t = performance.timing; return t.domContentLoadedEventEnd - t.navigationStart")
    assert ready < 2000


def test_without_javascript(show, chromium):
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page = show(document())
        assert page.find_element("css selector", "noscript .note").text.startswith("The data stands at the end")
        assert not page.find_element("id", "save").is_displayed()
        assert page.find_element("id", "treemap").is_displayed()
        assert [cell.text for cell in page.find_elements("css selector", "#types td")][:2] == ["Cache", "7.8 KiB"]
    finally:
        chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_it_prints(show, folder):
    page = show(document())
    printed = page.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert len(printed["data"]) > 10_000
    assert Path(folder).exists()
