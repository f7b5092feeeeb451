"""The page of ``report``: its figures are those of the document, and nothing of a target's runs or escapes."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import re
import sys
from itertools import cycle

import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")

from gdbext.analysis.growth.sample import KINDS  # noqa: E402
from gdbext.analysis.growth.trend import Shape  # noqa: E402
from gdbext.render.page.document import Redactor, embedded  # noqa: E402
from gdbext.render.page.linechart import Line, chart  # noqa: E402
from gdbext.render.page.mapdrawing import picture  # noqa: E402
from gdbext.render.page.page import page_of  # noqa: E402
from gdbext.render.page.texts import share  # noqa: E402
from tests.unit.render.page.pages import data_of, read_page, rows_of  # noqa: E402

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\"><svg onload=alert(1)>",
    "\x1b[31mred\x1b]0;title\x07",
    "\u202egpj.exe\u2066\u200f",
    "{{ 7 * 7 }}{% for x in y %}",
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "a\nb\r\0c",
    "x" * 1_000_000,
)


def skew_table(**more):
    return {"index": 0, "address": "0x5000", "bins": 4, "walked": 4, "max_len": 2, "load": 1.0, "empty_share": 0.25,
            "verdict": "ok", **more}  # fmt: skip


def heap_map():
    uses = {"used": [1, 0, 2, 1], "free": [1, 2, 0, 0]}
    return {
        "page_bytes": 4096, "cell_bytes": 8192, "left_out": 0, "left_out_bytes": 0,
        "uses": [{"use": "used", "pages": 4, "bytes": 16384, "share": 4 / 7},
                 {"use": "free", "pages": 3, "bytes": 12288, "share": 3 / 7}],
        "parts": [{"start": "0x10000", "end": "0x16000", "bytes": 24576, "name": "glibc main brk", "arena": "0xa0",
                   "first": 0, "cells": 3},
                  {"start": "0x90000", "end": "0x91000", "bytes": 4096, "name": "glibc mmapped", "arena": None,
                   "first": 3, "cells": 1}],
        "cells": {"uses": uses, "largest": [100, 4000, 8000, None], "block": ["0x10010", "0x12010", "0x14010", None]},
    }  # fmt: skip


def finding(**more):
    return {"kind": "leak", "severity": "warning", "confidence": "medium", "summary": "10 blocks leaked",
            "bytes": 4321, "waiters": None, "evidence": ["one", "two"], "remedy": "free them", "threads": None,
            "details": {}, **more}  # fmt: skip


def thread(number, name=None):
    return {"number": number, "lwp": 100 + number, "tid": None, "name": name, "state": "futex", "primitive": "mutex",
            "syscall": "futex", "lock": "0x7000", "lock_name": "cache_lock", "frame": "work",
            "frame_line": "a.c:1"}  # fmt: skip


def arena(address, used, cached, free):
    return {"address": address, "allocator": "glibc", "kind": "main", "used_blocks": 3, "used_bytes": used,
            "tcache_blocks": 1, "tcache_bytes": cached, "free_blocks": 2, "free_bytes": free,
            "threads": []}  # fmt: skip


def power(size, used, cached, free):
    return {"from_size": size, "bytes": used + cached + free, "share": 0.5, "used_blocks": 1, "used_bytes": used,
            "tcache_blocks": 1, "free_blocks": 1, "free_bytes": free}  # fmt: skip


def figure(kind, key, sizes, counts=(), shape="growing"):
    """Return a row of ``growth.series``, as ``compare`` has it: from the first that is known to the last."""
    known, counted = [one for one in sizes if one is not None], [one for one in counts if one is not None]
    ends = {"before": known[0] if known else None, "now": sizes[-1] if sizes else None,
            "before_count": counted[0] if counted else None, "now_count": counts[-1] if counts else None}  # fmt: skip
    changes = {
        name: None if None in (ends[now], ends[before]) else ends[now] - ends[before]
        for name, before, now in (("change", "before", "now"), ("change_count", "before_count", "now_count"))
    }
    return {"kind": kind, "key": key, **ends, **changes, "per_hour": 3600, "shape": shape, "bytes": list(sizes),
            "counts": list(counts)}  # fmt: skip


def growth():
    """Return what grew over four samples, of which the third was not examined to its end."""
    about = finding(kind="growth", summary="struct session grew", bytes=3000,
                    details={"of": "type", "key": "struct session", "kept_by": None, "leaked": False})  # fmt: skip
    moment = {"pid": 7, "time": 1e9, "held": None, "memory": 9000, "used_blocks": 8, "used_bytes": 5000, "threads": 2}
    series = [
        figure("total", "memory", [9000, 10000, None, 12000]),
        figure("total", "threads", [], [2, 2, None, 9]),
        figure("owner", "glibc in use", [5000, 6000, None, 8000]),
        figure("owner", "/lib/libc.so.6", [4000, 4000, None, 4000], shape="flat"),
        figure("size", "248", [1000, 2000, None, 4000], [4, 8, None, 16]),
        figure("type", "struct session", [1000, 2000, None, 4000], [4, 8, None, 16]),
        figure("type", "struct gone", [1000, 2000, 700, None], [4, 8, 1, None], "too few samples"),
    ]
    return {
        "program": "app", "findings": [about, finding(kind="thread-growth", details={"name": None})],
        "samples": [{"number": at + 1, "source": f"core.{at}", "seconds": 60.0 * at, "complete": at != 2, **moment}
                    for at in range(4)],
        "one_process": True, "blocks": [{"blocks_are": "new", "blocks": 12, "bytes": 3000}],
        "ages": [{"group": "struct session", "since": 2, "came_blocks": 4, "came_bytes": 1000, "blocks": 4,
                  "bytes": 999}],
        "limits": [{"limit": "cgroup", "bytes": 1 << 20, "taken": 12000, "per_hour": 3600, "seconds": 600.0}],
        "series": series, "changes": [],
    }  # fmt: skip


def document():
    """Return a small document with every section."""
    leaks = {
        "missing": [], "totals": {"leaked_blocks": 10, "leaked_bytes": 4321, "leak_root_blocks": 2,
                                  "reached_blocks": 5, "possibly_leaked_blocks": 0},
        "by_type": [{"type": "Request", "recognised_by": "vtable", "blocks": 10, "bytes": 4321, "leak_roots": 2,
                     "kept_bytes": 4321}],
        "leak_roots": [{"address": "0x10010", "size": 100, "kept_blocks": 5, "kept_bytes": 2000, "cycle": 0,
                        "type": "Request", "contents": "text: secret"}],
        "by_size": [{"size": 432, "blocks": 10, "bytes": 4320, "leak_roots": 2}],
    }  # fmt: skip
    lock = {"address": "0x7000", "name": "cache_lock", "primitive": "mutex", "waiters": 2, "waiting": [1, 2],
            "word": 2, "meaning": "held", "owner": {"number": 3, "lwp": 103, "tid": 3, "alive": True},
            "owner_waits": None, "holder_candidates": [], "holder_position": None, "faults": []}  # fmt: skip
    data = {
        "target": "app · pid 1", "verdict": "1 finding.", "death": ["SIGSEGV in thread 1"], "file": None,
        "growth": growth(),
        "triage": {"findings": [finding()], "died": {"frames": ["main.c:1 main"]}, "heaps": [], "ledger": {"entries": [
            {"owner": "glibc in use", "resident": None, "in_core": 20000, "bytes": 20480, "not_in_core": 0}]}},
        "memory": [{"owner": "glibc in use", "bytes": 20000, "share": 0.8, "remark": ""},
                   {"owner": "/lib/libc.so.6", "bytes": 5000, "share": 0.2, "remark": ""},
                   {"owner": "", "bytes": 25000, "share": 1.0, "remark": ""}],
        "shares": [{"group": "glibc", "owner": "glibc in use", "kind": "used", "bytes": 15000},
                   {"group": "glibc", "owner": "glibc bins", "kind": "free", "bytes": 5000},
                   {"group": "files", "owner": "/lib/libc.so.6", "kind": "file", "bytes": 5000}],
        "address_space": heap_map(), "heap_map": heap_map(),
        "summary": {"totals": {"used_blocks": 12, "used_bytes": 15000, "free_blocks": 3, "free_bytes": 5000,
                               "tcache_blocks": 1, "tcache_bytes": 48}, "by_size": [],
                    "arenas": [arena("0xa0", 10000, 48, 1000), arena(None, 5000, None, 4000)],
                    "by_power": [power(1024, 9000, 0, 1000), power(16, 100, 48, 20)]},
        "retained": {"reached": 9000, "reached_blocks": 9, "kept_by_one": 8000, "shared": 1000,
                     "roots": [{"root": "global cache", "kind": "global", "retained": 8000, "blocks": 8, "words": 1}],
                     "blocks": [{"address": "0x10010", "type": "Cache", "retained": 8000, "blocks": 8, "size": 64,
                                 "by": "global cache"}],
                     "types": [{"type": "Cache", "retained": 8000, "share": 0.8, "own": 64, "blocks": 1}]},
        "retained_tree": [
            {"above": None, "name": "global cache", "kind": "global", "bytes": 8000, "blocks": 8},
            {"above": None, "name": "several roots", "kind": "several", "bytes": 2000, "blocks": 1},
            {"above": 0, "name": "Cache", "kind": "type", "bytes": 8000, "blocks": 8},
            {"above": 2, "name": "Entry", "kind": "type", "bytes": 6000, "blocks": 6},
        ],
        "leaks": leaks,
        "leak_examples": [{"type": "Request", "block": "0x10010", "kept_by": "nothing", "steps": ["Request at +8"]}],
        "locks": {"findings": [], "sentences": ["thread 1 waits"], "locks": [lock],
                  "threads": [thread(1, "worker"), thread(2), thread(3)],
                  "cycles": [], "convoys": [], "unowned": []},
        "stacks": {"stacks": [{"count": 2, "numbers": [1, 2], "doing": "mutex", "stack": ["work", "main"], "frames": [
            {"function": "work", "line": "a.c:1", "module": "app", "address": "0x1"},
            {"function": None, "line": None, "module": None, "address": "0x2"}]}]},
        "tables": [{"name": "cache", "answer": {
            "shape": "s", "verdict": "ok", "explanations": [], "tables": [skew_table()], "worst_bins": [],
            "histogram": [[0, 1], [1, 2], [2, 1]], "total": 4, "max_len": 2, "misplaced": None}}],
        "notes": ["a note"],
    }  # fmt: skip
    return {
        "schema": "gdbext/report/2", "tool": {"version": "1"},
        "target": {"exe": "/bin/app", "build_id": "93ac6100", "pid": 1, "core": "core.1", "time": 1.0}, "data": data,
        "evidence": [{"subject": "libc", "message": "found"}],
        "problems": [{"kind": "chunk-size", "address": "0x10", "message": "odd", "corruption": True}],
        "held_seconds": None, "complete": True, "findings": True, "status": 1, "cut": {},
    }  # fmt: skip


@pytest.fixture(scope="module")
def tree():
    return read_page(page_of(document()))


def test_the_document_stands_in_the_page(tree):
    assert data_of(tree) == document()


TABLES = {
    "samples": ("growth.samples", ("number", "memory", "used_bytes", "used_blocks", "threads")),
    "block-exchange": ("growth.blocks", ("blocks", "bytes")),
    "ages": ("growth.ages", ("since", "came_blocks", "came_bytes", "blocks", "bytes")),
    "limits": ("growth.limits", ("bytes", "taken", "per_hour", "seconds")),
    "owners": ("memory", ("bytes", "share")),
    "ledger": ("triage.ledger.entries", ("in_core", "bytes", "not_in_core")),
    "heap_map-uses": ("heap_map.uses", ("pages", "bytes", "share")),
    "address_space-uses": ("address_space.uses", ("pages", "bytes", "share")),
    "stretches": ("address_space.parts", ("start", "end", "bytes")),
    "sizes-table": ("summary.by_power", ("from_size", "bytes", "used_blocks", "used_bytes", "free_bytes")),
    "arenas-table": ("summary.arenas", ("used_blocks", "used_bytes", "free_blocks", "free_bytes")),
    "types": ("retained.types", ("retained", "share", "own", "blocks")),
    "roots": ("retained.roots", ("retained", "blocks", "words")),
    "heads": ("retained.blocks", ("address", "retained", "blocks", "size")),
    "leaked-types": ("leaks.by_type", ("blocks", "bytes", "leak_roots", "kept_bytes")),
    "leak-roots": ("leaks.leak_roots", ("address", "size", "kept_blocks", "kept_bytes")),
    "leaked-sizes": ("leaks.by_size", ("size", "blocks", "bytes", "leak_roots")),
    "threads": ("locks.threads", ("number", "lwp", "lock")),
    "table-1": ("tables.0.answer.tables", ("bins", "walked", "max_len", "empty_share")),
}


def value_at(value, path):
    for name in path.split("."):
        value = value[int(name)] if name.isdigit() else value[name]
    return value


def test_what_changed_is_as_compare_says_what_grows_first(tree):
    shown = {cells[1][1]: cells for cells in rows_of(tree, "changes")}
    names = ["struct session", "blocks of 248 bytes", "glibc in use", "all memory", "threads", "struct gone"]
    assert list(shown) == names  # nothing of what stayed as it was
    rows = {row["key"]: row for row in growth()["series"]}
    for name, key in (("struct session", "struct session"), ("blocks of 248 bytes", "248"), ("threads", "threads")):
        fields = ("before", "now", "change", "per_hour", "before_count", "now_count", "change_count")
        assert [cell for cell, _ in shown[name][2:9]] == [
            "" if rows[key][field] is None else str(rows[key][field]) for field in fields
        ]
    assert [text for _, text in shown["struct gone"][2:]] == ["1000 B", "–", "–", "+3.5 KiB", "4", "–", "–",
                                                             "too few samples"]  # fmt: skip


def test_lines_have_a_gap_where_a_figure_is_not_known(tree):
    for name, lines in (("growth-owners", 3), ("growing", 1), ("counted", 1)):
        drawn = tree.one("svg", id=name)
        paths = [path["d"] for path in drawn.all("path") if path["d"].startswith("M") and path.get("class") is None]
        assert len(paths) == lines
        for path in paths:
            assert [part.count("L") for part in path.split("M")[1:]] == [1, 0]  # two samples, and one by itself
        assert len(list(drawn.all("circle"))) == 3 * lines
        (partial,) = drawn.all("rect", class_="partial")
        moments = list(drawn.all("rect", class_="moment"))
        assert partial["x"] == moments[2]["x"] and "not examined to its end" in moments[2].text
    titles = [moment.text for moment in tree.one("svg", id="growth-owners").all("rect", class_="moment")]
    assert titles[1] == "sample 2, +60 s: all memory 9.8 KiB; glibc in use 5.9 KiB; libc.so.6 3.9 KiB"
    assert titles[2].endswith("all memory not known; glibc in use not known; libc.so.6 not known")


def test_lines_are_to_scale(tree):
    """The axis ends at 12 KiB; 248 pixels are its height, and one of four samples is a third of its width."""
    drawn = tree.one("svg", id="growth-owners")
    marks = [text.text for text in drawn.all("text")][:4]
    assert marks == ["0 B", "4 KiB", "8 KiB", "12 KiB"]
    first = next(path["d"] for path in drawn.all("path") if path.get("class") is None)
    (x, y), (across, up) = [list(map(float, point.split())) for point in first[1:].split("M")[0].split("L")]
    height = 320 - 14 - 34
    assert (y - up) == pytest.approx(height * 1000 / 12288, abs=0.02)
    assert across - x == pytest.approx((1000 - 74 - 236) / 3, abs=0.02)


def test_each_sample_of_a_line_is_in_its_table(tree):
    rows = rows_of(tree, "growth-owners-figures")
    assert [[cell for cell, _ in row[2:]] for row in rows] == [
        ["9000", "5000", "4000"], ["10000", "6000", "4000"], ["", "", ""], ["12000", "8000", "4000"]
    ]  # fmt: skip
    assert [text for _, text in rows[2]] == ["3", "+2 min", "–", "–", "–"]


def test_ends_of_lines_are_labelled_apart():
    lines = [Line(f"owner {at}", [5, 5 + at % 2]) for at in range(9)]
    samples = [{"number": at + 1, "seconds": None, "complete": True} for at in range(2)]
    places = sorted(float(line["label"]["y"]) for line in chart(lines, samples, sized=False)["lines"])
    assert all(after - before >= 15 for before, after in zip(places, places[1:]))
    assert places[0] >= 14 and places[-1] <= 320 - 34


def test_findings_of_growth_come_first_but_for_what_is_critical():
    made = document()
    made["data"]["triage"]["findings"] = [finding(kind="corruption", severity="critical"), finding()]
    shown = [one.one("h3").text.split()[1] for one in read_page(page_of(made)).all("article")]
    assert shown == ["corruption", "growth", "thread-growth", "leak"]


def test_a_page_about_samples_alone():
    made = document()
    lists = ("death", "memory", "shares", "retained_tree", "leak_examples", "tables")
    kept = ("target", "verdict", "growth", "triage", "notes", "file")
    made["data"]["triage"] = {"findings": [], "died": None, "heaps": [], "ledger": None}
    made["data"] = {
        name: value if name in kept else [] if name in lists else None for name, value in made["data"].items()
    }
    found = read_page(page_of(made))
    sections = [section["id"] for section in found.all("section")]
    assert sections == ["findings", "growth", "evidence"]
    assert {link["href"][1:] for link in found.all("a")} <= {"main", *sections}


@pytest.mark.parametrize("table", TABLES)
def test_figures_of_tables_are_those_of_the_document(tree, table):
    path, names = TABLES[table]
    wanted = [row for row in value_at(document()["data"], path) if table != "owners" or row["owner"]]
    shown = rows_of(tree, table)
    assert len(shown) == len(wanted)
    for row, cells in zip(wanted, shown):
        exact = [value for value, _ in cells if value is not None]
        for name in names:
            assert ("" if row[name] is None else str(row[name])) in exact, name


def test_pictures_are_to_scale(tree):
    tiles = [tile for tile in tree.one("svg", id="treemap").all("g") if not tile.has(class_="group")]
    areas = {tile["data-value"]: float(tile["data-w"]) * float(tile["data-h"]) for tile in tiles}
    assert set(areas) == {"15000", "5000"} and len(tiles) == 3
    nodes = list(tree.one("svg", id="icicle").all("g"))
    assert [float(node["data-w"]) for node in nodes] == [800, 200, 800, 600]
    assert [float(node["data-x"]) for node in nodes] == [0, 800, 0, 0]
    assert [node["data-depth"] for node in nodes] == ["0", "0", "1", "2"]


def test_cells_of_the_map(tree):
    """Each cell is as tall as its pages are many, in whole cells of 8: used 4, 0, 8, 8; free 4, 8."""
    drawn = tree.one("svg", id="heap_map")
    heights = {
        path["class"]: sum(
            float(width) * float(height) for width, height in re.findall(r"h([\d.]+)v([\d.]+)h-", path["d"])
        )
        for path in drawn.all("path")
    }
    assert heights == {"k-used": 6 * (4 + 8 + 8), "k-free": 6 * (4 + 8)}
    labels = [label.text for label in drawn.all("text", class_="part")]
    assert labels == ["glibc main brk 0x10000", "glibc mmapped 0x90000"]


def test_short_stretches_of_one_kind_share_a_row():
    drawn = heap_map()
    arena, mapped = drawn["parts"]
    parts = [{**mapped, "first": 3 + 40 * at, "cells": 40} for at in range(4)]
    drawn.update(parts=[arena, *parts])
    drawn["cells"]["uses"] = {"used": [1] * 163}
    placed = [(label.y, label.column, bool(label.text)) for label in picture(drawn).labels]
    assert placed == [(0, 0, True), (14, 0, True), (14, 41, False), (14, 82, False), (28, 0, True)]


def test_sizes_stand_in_their_order_also_those_without_blocks(tree):
    """Of sizes from 16 to 1024 bytes: as wide as each other, and 9000 of the axis's 10240 bytes high."""
    drawn = tree.one("section", id="sizes").one("svg", class_="chart")
    whole, *groups = drawn.all("g")
    columns = [(one.one("title").text, one.one("text").text) for one in groups]
    assert [label for _, label in columns] == ["16 B", "32 B", "64 B", "128 B", "256 B", "512 B", "1 KiB"]
    assert columns[1][0] == "32 B to 64 B: none" and columns[6][0].startswith("1 KiB to 2 KiB: 8.8 KiB used")
    assert [text.text for text in whole.all("text")][:6] == ["0 B", "2 KiB", "4 KiB", "6 KiB", "8 KiB", "10 KiB"]
    tallest = max(float(rect["height"]) for rect in drawn.all("rect"))
    assert tallest == pytest.approx(200 * 9000 / 10240, abs=0.01)


def test_what_a_person_wants_first_comes_first(tree):
    sections = [section["id"] for section in tree.all("section")]
    assert sections[:4] == ["crash", "findings", "growth", "memory"]
    labels = [" ".join(bar.one("span").text.split()) for bar in tree.all("div", class_="bar")]
    assert labels == ["main 0xa0 10.8 KiB", "main 8.8 KiB"]


def test_a_small_share_is_not_nothing():
    assert [share(value) for value in (0.0, 0.0001, 0.004, None)] == ["0 %", "< 0.1 %", "0.4 %", "–"]


def test_bars_of_a_hash_table(tree):
    bars = [rect["data-value"] for rect in tree.one("section", id="tables").all("rect", class_="k-used")]
    assert bars == ["1", "2", "1"]
    titles = [title.text for title in tree.one("section", id="tables").all("title")]
    assert titles[0] == "0 entries: 1 bins; chance gives 1.5"  # 4 bins, load 1: 4 / e


def test_the_policy_allows_the_page_and_nothing_else(tree):
    text = page_of(document())
    policy = tree.one("meta", **{"http-equiv": "Content-Security-Policy"})["content"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    style = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    for rule, found in (("script-src", script), ("style-src", style)):
        (only,) = found
        digest = base64.b64encode(hashlib.sha256(only.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert set(rules) == {"default-src", "base-uri", "form-action", "script-src", "style-src"}


def test_nothing_is_fetched_and_no_style_is_inline(tree):
    for node in tree.all():
        assert node.name not in ("link", "img", "iframe", "object", "embed", "base", "form", "audio", "video")
        assert not any(name.startswith("on") or name in ("style", "src", "srcset") for name in node.attributes)
        assert node.get("href", "#").startswith("#")
    assert "http://" not in page_of(document()) and "https://" not in page_of(document())


def test_the_page_reads_without_javascript(tree):
    every = ["findings", "growth", "memory", "heap", "sizes", "arenas", "retained", "leaks", "locks", "evidence"]
    for section in every:
        assert tree.one("section", id=section).text.strip()
    assert tree.one("svg", id="treemap") and len(list(tree.all("table"))) >= len(TABLES)


def test_ids_are_there_once_and_every_link_leads_somewhere(tree):
    ids = [node["id"] for node in tree.all() if "id" in node.attributes]
    assert len(set(ids)) == len(ids)
    assert {link["href"][1:] for link in tree.all("a")} <= set(ids)
    for node in tree.all():
        assert node.get("aria-labelledby", ids[0]) in ids


OF_GROWTH = ("growth", "thread-growth", "total", "owner", "type", "size")


def hostile(value, texts, keys=None):
    """Return a document whose texts all are hostile, each the next one; what is a word or an address of ours stays.

    :param keys: those of growth by what they were: findings name the same as figures.
    """
    keys = {} if keys is None else keys
    if isinstance(value, dict):
        kept = ["schema", "severity", "confidence", "use", "address", "start", "end", "block", "arena", "lock", "cut"]
        kept += ["version", "of", *(["kind"] if value.get("kind") in ("used", "free", "file", *OF_GROWTH) else [])]
        kept += ["key"] if value.get("kind") == "total" else []
        if "key" in value and "key" not in kept:
            value = {**value, "key": keys.setdefault(value["key"], next(texts))}
            kept.append("key")
        return {name: item if name in kept else hostile(item, texts, keys) for name, item in value.items()}
    if isinstance(value, list):
        return [hostile(item, texts, keys) for item in value]
    return next(texts) if value and isinstance(value, str) else value


@pytest.mark.parametrize("first", range(0, len(HOSTILE), 3))
def test_hostile_names_are_text(tree, first):
    made = page_of(hostile(document(), cycle([text[:400] for text in HOSTILE[first:] + HOSTILE[:first]])))
    found = read_page(made)
    assert [(node.name, sorted(node.attributes)) for node in shapeless(found)] == [
        (node.name, sorted(node.attributes)) for node in shapeless(tree)
    ]
    shown = "".join(char for char in made if not char.isprintable() and char != "\n")
    assert shown == ""  # no escape, no mark of direction
    assert "{{ 7 * 7 }}" in found.text


def shapeless(tree):
    """Iterate over elements, but for parts of pictures, of which names may change the number."""
    for node in tree.all():
        if node.name not in ("rect", "path", "text", "g", "title", "line"):
            yield node


def test_a_name_of_a_megabyte_is_cut_where_it_is_shown():
    long = document()
    long["data"]["locks"]["threads"][0]["name"] = "n" * 1_000_000
    long["data"]["retained"]["types"][0]["type"] = "t<" * 500_000
    found = read_page(page_of(long))
    assert max(len(cell.text) for cell in found.all("td")) <= 300


def test_embedded_text_ends_no_script():
    text = embedded({"x": "</script><!--<script>&amp;\u2028"})
    assert "<" not in text and ">" not in text and "&" not in text and text.isascii()
    assert json.loads(text) == {"x": "</script><!--<script>&amp;\u2028"}


def test_redaction_leaves_no_text_of_the_target():
    secret = "Zsecretz"
    source = hostile(document(), cycle([f"/home/{secret}/x"]))
    source["data"]["triage"]["findings"][0]["summary"] = f"{secret} leaked"
    clean = Redactor().redacted(source)
    assert secret not in json.dumps(clean)
    assert secret not in page_of(clean)


def test_redaction_keeps_figures_and_words_of_ours():
    clean = Redactor().redacted(copy.deepcopy(document()))
    rows = rows_of(read_page(page_of(clean)), "leaked-types")
    assert [value for value, _ in rows[0]][2:] == ["10", "4321", "2", "4321"] and rows[0][1][1] == "vtable"
    assert clean["data"]["heap_map"] == document()["data"]["heap_map"]
    assert clean["data"]["memory"][0]["owner"] == "glibc in use"
    keys = [row["key"] for row in clean["data"]["growth"]["series"]]
    assert keys == ["memory", "threads", "glibc in use", "owner 1", "248", "type 1", "type 2"]
    assert clean["data"]["growth"]["findings"][0]["details"]["key"] == "type 1"
    assert clean["data"]["growth"]["series"][0]["bytes"] == [9000, 10000, None, 12000]


@pytest.mark.parametrize(
    ("verdict", "left"),
    [
        ("2 findings: struct zsecret grew.", "2 findings."),
        ("No findings in what was examined; not examined: /zsecret", "No findings; not all was examined."),
        ("/zsecret", "verdict 1"),
    ],
)
def test_a_redacted_verdict_keeps_its_number_of_findings(verdict, left):
    assert Redactor().redacted({"verdict": verdict}) == {"verdict": left}


def test_words_of_growth_are_ours():
    """A kind or a shape that is new there is redacted until it is listed here."""
    words = [*KINDS, *(shape.value for shape in Shape)]
    assert Redactor().redacted(words) == words


def test_redaction_numbers_types_alike_everywhere():
    clean = Redactor().redacted(copy.deepcopy(document()))
    names = [row["type"] for row in (clean["data"]["leaks"]["by_type"][0], clean["data"]["leak_examples"][0])]
    assert names == ["type 4", "type 4"]  # the same name is the same again


def test_a_page_without_a_heap():
    bare = document()
    empty = dict.fromkeys(("address_space", "heap_map", "summary", "retained", "leaks", "locks", "stacks"))
    bare["data"].update(empty, death=[], shares=[], retained_tree=[], tables=[], leak_examples=[])
    found = read_page(page_of(bare))
    assert not list(found.all("section", id="heap")) and found.one("section", id="memory")


def test_nothing_else_loads_it():
    assert "gdbext.render.page.page" in sys.modules  # of this file
    from tests.unit.test_imports import ROOT, imports_of, sources

    users = {
        str(path.relative_to(ROOT))
        for path in sources()
        for name in imports_of(path)
        if name.startswith("gdbext.render.page") and "render/page" not in str(path)
    }
    assert users == {"commands/report.py", "commands/heapmap.py", "gdbext/fleet/command.py"}
    assert not [path for path in sources() if "jinja2" in imports_of(path) and path.name != "page.py"]
