"""``report`` over real targets: its parts are the answers of the other commands, and its page shows them."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.gdb.answers import ask
from tests.support.boards import require
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


def texts_of(value):
    """Iterate over all texts of a document."""
    if isinstance(value, dict):
        for item in value.values():
            yield from texts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)
    elif isinstance(value, str):
        yield value


OURS = {"brk", "heap", "main", "thread", "glibc", "files", "used", "free"}  # words that a symbol may be, too


@pytest.mark.boards(target=("core",), info=("debug",), glibc=("system",))
def test_a_redacted_page_has_nothing_of_the_programs_names(stage, board, tmp_path):
    here = stage("leaks")
    pages = [tmp_path / "page.html", tmp_path / "redacted.html"]
    ask(here, f"gx report -o {pages[0]}", f"gx report -o {pages[1]} --redact")
    plain, clean = (data_of(read_page(path.read_text())) for path in pages)
    kept = set(texts_of(clean))
    assert "huge_held" in pages[0].read_text() and "huge_held" not in pages[1].read_text()
    assert not any("/" in text and text != "gdbext/report/2" for text in kept)
    symbols = subprocess.run(["nm", "-a", str(here.executable)], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1] for line in symbols.splitlines() if len(line.split()[-1]) > 5}
    assert not names & {word for text in kept for word in re.findall(r"\w+", text)} - OURS
    for part in ("heap_map", "retained_tree"):
        assert len(clean["data"][part]) == len(plain["data"][part])
    assert clean["data"]["summary"] == plain["data"]["summary"] and clean["status"] == plain["status"]


@pytest.mark.boards(target=("core",), info=("debug",), glibc=("system",))
def test_the_core_itself_is_never_overwritten(stage, board):
    here = stage("leaks")
    before = here.core.stat()
    run = [str(CHECKOUT / "bin" / "gdbext"), "report", str(here.core), "-o", str(here.core)]
    refused = subprocess.run(run, capture_output=True, text=True)
    assert refused.returncode == 2 and "names the core itself" in refused.stderr
    assert "names the core itself" in here.text(f"gx report -o {here.core}").err
    assert here.core.stat() == before


PROGRAM = """
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    void *kept = malloc(100000);
    prctl(PR_SET_NAME, "<b>\\xe2\\x80\\xae\\x1b[1m{{1");
    mmap(0, 4096, PROT_READ, MAP_PRIVATE, open(argv[1], O_RDONLY), 0);
    write(1, "ready", 5);
    pause();
    return kept != 0;
}
"""


@pytest.mark.boards(target=("attach",), info=("debug",), glibc=("system",))
def test_hostile_names_of_a_process(board, tmp_path):
    """A thread, a mapped file and the program itself have such names: they are text, and nothing else."""
    require(board)
    program, mapped = tmp_path / "<img src=x>'\"{{7*7}}", tmp_path / "</title>\u202e&amp;\x1b[31m"
    (tmp_path / "hostile.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-w", "-o", str(program), str(tmp_path / "hostile.c")], check=True)
    mapped.parent.mkdir()
    mapped.write_bytes(b"x" * 4096)
    page = tmp_path / "page.html"
    with subprocess.Popen([str(program), str(mapped)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.read(5) == b"ready"
            run = [str(CHECKOUT / "bin" / "gdbext"), "report", "-p", str(process.pid), "-o", str(page)]
            done = subprocess.run(run, capture_output=True, text=True)
        finally:
            process.kill()
    assert done.returncode in (0, 1, 3), done.stderr
    assert str(page) in done.stdout and page.stat().st_size < 3 << 20
    tree = read_page(page.read_text())
    (thread,) = rows_of(tree, "threads")
    assert thread[2][1] == "<b>\\u202e\\x1b[1m{{1"
    owners = [cells[0][1] for cells in rows_of(tree, "ledger")]
    assert str(program) in owners
    assert any(owner.endswith("/</title>\\u202e&amp;\\x1b[31m") for owner in owners)
    assert not [*tree.all("b"), *tree.all("img")] and len(list(tree.all("h1"))) == 1


@pytest.mark.boards(target=("core",), info=("debug",), glibc=("system",))
def test_folded_stacks_add_up(stage, board, tmp_path):
    here = stage("leaks")
    flames = [tmp_path / "kept.txt", tmp_path / "leaked.txt"]
    kept, leaked = ask(here, f"blocks retained --flame {flames[0]}", f"blocks leaks --flame {flames[1]}")
    sums = [sum(int(line.rpartition(" ")[2]) for line in flame.read_text().splitlines()) for flame in flames]
    assert sums == [kept["data"]["reached"], leaked["data"]["totals"]["leaked_bytes"]]
    assert all(re.fullmatch(r"[^;]+(;[^;]+)* \d+", line) for line in flames[0].read_text().splitlines())
    address = leaked["data"]["leak_roots"][0]["address"]
    here.text(f"blocks path {address} --dot {tmp_path / 'path.dot'}")
    assert f"b{address[2:]} [label=" in (tmp_path / "path.dot").read_text()
