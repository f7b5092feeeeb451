"""``heapmap`` of a program that has planted patterns: each page is what the program, or the kernel, says of it."""

from __future__ import annotations

import pytest

PAGE = 4096


def pages_between(start, end):
    """Return the pages that lie wholly between two addresses."""
    return range(-(-start // PAGE) * PAGE, end // PAGE * PAGE, PAGE)


def use_of_pages(data):
    """Return what each page of a map is, by its address; a cell of several pages counts for none."""
    assert data["page_bytes"] == data["cell_bytes"] == PAGE
    found = {}
    for part in data["parts"]:
        for at in range(part["first"], part["first"] + part["cells"]):
            (use,) = [use for use, pages in data["cells"]["uses"].items() if pages[at]]
            found[int(part["start"], 16) + (at - part["first"]) * PAGE] = use
    return found


@pytest.mark.boards(target=("core", "attach"), info=("bare",), glibc=("system",))
def test_planted_patterns(stage, board):
    here = stage("page_patterns")
    check(here.gdbext("heapmap")["data"], here.truth.details, healthy=False)


@pytest.mark.boards(target=("core",), info=("debug",), glibc=("trixie",))
def test_the_healthy_twin(stage, board):
    here = stage("page_patterns", "--healthy")
    check(here.gdbext("heapmap")["data"], here.truth.details, healthy=True)


def check(data, said, healthy):
    uses = use_of_pages(data)
    assert {uses[int(address, 16)] for address in said["kept"]} == {"used"}
    assert [uses[int(address, 16)] for address in said["freed"]] == ["free"] * len(said["freed"])
    assert len(said["freed"]) == (0 if healthy else 128)
    inside = {}
    for name in ("returned", "unreturned"):
        start, size = int(said[name][0], 16), said[name][1]
        inside[name] = [uses[page] for page in pages_between(start, start + size)]
    assert inside["returned"].count("returned") == said["gone"]
    assert inside["returned"].count("used" if healthy else "free") == len(inside["returned"]) - said["gone"]
    assert set(inside["unreturned"]) == {"used" if healthy else "free"}
    arenas = {part["arena"] for part in data["parts"]}
    assert len(set(said["arenas"])) == 40 and len(arenas) == 41
    assert set(said["arenas"]) < arenas


@pytest.mark.boards(target=("core",), info=("debug",), glibc=("system",))
def test_one_arena_and_a_range(stage, board, tmp_path):
    here = stage("page_patterns")
    said = here.truth.details
    (one,) = {part["arena"] for part in here.gdbext(f"heapmap {said['arenas'][7]}")["data"]["parts"]}
    assert one == said["arenas"][7]
    start, size = int(said["unreturned"][0], 16), said["unreturned"][1]
    low, high = pages_between(start, start + size)[0], pages_between(start, start + size)[-1] + PAGE
    drawing = tmp_path / "map.svg"
    data = here.gdbext(f"heapmap {low:#x}-{high:#x} --svg {drawing}")["data"]
    assert data["cells"]["uses"] == {"free": [1] * ((high - low) // PAGE)}
    assert set(data["cells"]["largest"]) == {size + 8} and set(data["cells"]["block"]) == {said["unreturned"][0]}
    assert drawing.read_text().count('class="k-free" d="') == 1
    assert "is no arena" in here.text("heapmap 1").err
