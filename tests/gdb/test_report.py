"""``report`` over real targets: its parts are the answers of the other commands, and its page shows them."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.gdb.answers import ask
from tests.support.cache import CHECKOUT
from tests.unit.render.page.pages import data_of, read_page, rows_of

pytest.importorskip("jinja2", reason="Jinja2 is not installed")

PARTS = {
    "triage": "triage",
    "heap_map": "heapmap",
    "summary": "blocks summary",
    "retained": "blocks retained --top 50",
    "leaks": "blocks leaks",
    "locks": "lockwait",
    "stacks": "lockwait --stacks",
}


@pytest.mark.boards(target=("core", "attach"), info=("debug",), glibc=("system",), program=("leaks", "locks"))
def test_each_part_is_the_answer_of_its_command(stage, board, program, tmp_path):
    here = stage(program)
    page = tmp_path / "page.html"
    report, *others = ask(here, f"gx report -o {page}", *PARTS.values())
    data = report["data"]
    for (part, command), answer in zip(PARTS.items(), others):
        if part == "heap_map":  # of more cells
            assert data[part]["uses"] == answer["data"]["uses"], command
        else:
            assert data[part] == answer["data"], command
    assert (report["status"], report["findings"]) == (others[0]["status"], others[0]["findings"])
    tree = read_page(page.read_text())
    figures = [[cell for cell, _ in row if cell is not None] for row in rows_of(tree, "arenas-table")]
    assert [row[1:3] for row in figures] == [
        [str(arena["used_blocks"]), str(arena["used_bytes"])] for arena in data["summary"]["arenas"]
    ]
    shown = data_of(tree)["data"]
    assert shown["summary"]["totals"] == data["summary"]["totals"] and shown["memory"] == data["memory"]
    if data["leaks"]["leak_roots"]:
        assert {row["contents"] for row in shown["leaks"]["leak_roots"]} == {None}


@pytest.mark.boards(target=("core",), info=("debug",), glibc=("system",))
def test_hash_tables_and_their_figures(stage, board, tmp_path):
    here = stage("hash_tables", "--modes", "stale", "--entries", "500")
    page = tmp_path / "page.html"
    report, skew = ask(here, f"gx report -o {page}", "slabskew stale_cache")
    named = {row["name"]: row["answer"] for row in report["data"]["tables"]}
    assert named["stale_cache"] == skew["data"]
    tree = read_page(page.read_text())
    assert "stale_cache" in tree.one("section", id="tables").text


@pytest.mark.boards(target=("core",), info=("debug",), glibc=("system",))
def test_from_the_shell(stage, board, tmp_path):
    """One file; redacted, nothing of the program's names is in it; the core itself is never overwritten."""
    here = stage("leaks")
    run = [str(CHECKOUT / "bin" / "gdbext"), "report", str(here.core), "--exe", str(here.executable)]
    page, redacted = tmp_path / "page.html", tmp_path / "redacted.html"
    for path, more in ((page, []), (redacted, ["--redact"])):
        done = subprocess.run([*run, "-o", str(path), *more], capture_output=True, text=True)
        assert done.returncode in (0, 1, 3), done.stderr
        assert str(path) in done.stdout
    assert page.stat().st_size < 3 << 20
    (data,) = [data_of(read_page(path.read_text())) for path in (redacted,)]
    for name in ("leaks", "huge_held", str(here.core), "libc.so"):
        assert name in page.read_text() and f'"{name}' not in json.dumps(data["data"]).replace('"leaks": {', "")
    assert here.executable.name not in {row["name"] for row in data["data"]["address_space"]["parts"]}
    before = here.core.stat()
    refused = subprocess.run([*run, "-o", str(here.core)], capture_output=True, text=True)
    assert refused.returncode == 2 and "names the core itself" in refused.stderr
    assert here.core.stat() == before
