"""``blocks list --where`` and ``blocks at`` on cores.

Held to the program's own truth, to lists that are filtered here in Python, and to the memory as gdb reads it.
"""

from __future__ import annotations

from ast import literal_eval

import pytest

from tests.gdb.answers import ask
from tests.support.boards import Board
from tests.support.glibcs import Unavailable
from tests.support.truth import address

SYSTEM = Board("core", "debug", "system")
ALL = "address,size,state,reach,refs,type,confidence,arena,thread,allocator"
QUERIES = {
    "64 <= size < 1K": lambda row: 64 <= row["size"] < 1024,
    "state == in-use or size in (24, 0x28)": lambda row: row["state"] == "in use" or row["size"] in (24, 40),
    "state == 'leaked' and refs == 0": lambda row: row["reach"] == "leaked" and row["refs"] == 0,
    "not (state == leaked)": lambda row: row["reach"] != "leaked",
    "state ~ '^possibly|tcache'": lambda row: row["reach"] == "possibly leaked" or row["state"] == "tcache",
    "refs >= 2 and not size < 100": lambda row: (row["refs"] or 0) >= 2 and row["size"] >= 100,
    "not refs < 2": lambda row: row["refs"] is not None and row["refs"] >= 2,
    "type !~ '^unknown$'": lambda row: row["type"] not in (None, "unknown"),
    "confidence in (medium, high)": lambda row: row["confidence"] in ("medium", "high"),
    "arena != none and thread == 1": lambda row: row["arena"] and 1 in [one["number"] for one in row["thread"]],
    "arena == none": lambda row: row["arena"] is None,
    "allocator ~ libc and reach != reached": lambda row: row["reach"] not in (None, "reached"),
}


@pytest.fixture(scope="module")
def here(stages):
    try:
        return stages.get(SYSTEM, "leaks")
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def every(here):
    """Every block with all its columns."""
    (answer,) = ask(here, f"blocks list --columns {ALL}")
    return answer["data"]["blocks"]


def stated(here, state):
    return {address(one["address"]) for one in here.truth.details["blocks"] if one["state"] == state}


def test_states_are_as_the_program_states_them(here):
    leaked, maybe, both = ask(
        here,
        "blocks list --where 'state == leaked'",
        "blocks list --where 'reach == possibly-leaked'",
        "blocks list --count --where 'state in (leaked, possibly-leaked)'",
    )
    assert {address(row["address"]) for row in leaked["data"]["blocks"]} == stated(here, "leaked")
    assert {address(row["address"]) for row in maybe["data"]["blocks"]} == stated(here, "possibly leaked")
    assert set(both["data"]) == {"matching_blocks", "matching_bytes"}
    assert both["data"]["matching_blocks"] == len(stated(here, "leaked") | stated(here, "possibly leaked"))
    assert both["data"]["matching_bytes"] == sum(
        one["usable"] for one in here.truth.details["blocks"] if one["state"] in ("leaked", "possibly leaked")
    )
    assert leaked["complete"] and {row["reach"] for row in leaked["data"]["blocks"]} == {"leaked"}


def test_the_healthy_twin_has_none(stages):
    try:
        twin = stages.get(SYSTEM, "leaks", ("--healthy",))
    except Unavailable as reason:
        pytest.skip(str(reason))
    (answer,) = ask(twin, "blocks list --where 'state in (leaked, possibly-leaked)'")
    assert answer["data"]["blocks"] == [] and answer["complete"]


def test_a_query_picks_what_filtering_the_whole_list_picks(here, every):
    answers = ask(here, *(f'blocks list --columns {ALL} --where "{text}"' for text in QUERIES))
    for (text, wanted), answer in zip(QUERIES.items(), answers):
        expected = [row for row in every if wanted(row)]
        assert answer["data"]["blocks"] == expected, text
        assert answer["data"]["matching_bytes"] == sum(row["size"] for row in expected)
    assert sum(bool(answer["data"]["blocks"]) for answer in answers) > 8  # the queries are about something


def test_orders_are_those_of_python(here, every):
    (answer,) = ask(here, f"blocks list --columns {ALL} --sort -refs,size --where 'refs >= 0'")
    live = [row for row in every if row["refs"] is not None]
    assert answer["data"]["blocks"] == sorted(live, key=lambda row: (-row["refs"], row["size"]))


def test_references_to_leaked_blocks_are_those_that_the_words_of_blocks_make(here, every):
    """Nothing but a leaked block points at a leaked one, so blocks alone need to be looked at."""
    live = [(address(row["address"]), row["size"]) for row in every if row["reach"]]
    listed = repr(live)
    code = f"""
import struct
counts = {{}}
blocks = {listed}
memory = gdb.selected_inferior().read_memory
for start, size in blocks:
    if size > 1 << 20:
        continue
    words = struct.unpack("<%dQ" % (size // 8), bytes(memory(start, size // 8 * 8)))
    for goal, length in blocks:
        if goal != start and any(goal <= word < goal + length for word in words):
            counts[goal] = counts.get(goal, 0) + 1
print("COUNTS", counts)
"""
    line = next(line for line in here.python(code).splitlines() if line.startswith("COUNTS"))
    counted = literal_eval(line.partition(" ")[2])  # a dictionary of numbers, written by the script above
    leaked = [row for row in every if row["reach"] == "leaked"]
    assert leaked and any(row["refs"] for row in leaked)
    for row in leaked:
        assert row["refs"] == counted.get(address(row["address"]), 0), row


def test_the_words_of_blocks_are_those_of_memory(here, every):
    chosen = [row for row in every if row["size"] <= 4096][:: max(len(every) // 12, 1)]
    answers = ask(here, *(f"blocks at {row['address']} --words 0" for row in chosen))
    places = [(address(row["address"]), row["size"] // 8) for row in chosen]
    code = f"""
import struct
for start, words in {places!r}:
    print("WORDS", struct.unpack("<%dQ" % words, bytes(gdb.selected_inferior().read_memory(start, words * 8))))
"""
    lines = [line for line in here.python(code).splitlines() if line.startswith("WORDS")]
    for row, answer, line in zip(chosen, answers, lines):
        data = answer["data"]
        dumped = [int(word["value"], 0) for word in data["dump"] for _ in range(word["words"])]
        assert dumped == list(literal_eval(line.partition(" ")[2]))  # a tuple of numbers, as above
        offsets = [word["offset"] for word in data["dump"]]
        assert offsets == sorted(set(offsets)) and offsets[0] == 0
        assert (data["reach"], data["type"]) == (row["reach"], row["type"])
        starts = {one["address"]: one["size"] for one in every}
        for word in data["dump"]:
            if word["block"] and "mangled" not in word["what"]:
                assert 0 <= int(word["value"], 0) - address(word["block"]) < max(starts[word["block"]], 1)


def test_links_of_thread_caches_are_decoded(here, every):
    """The link of a cached block is its own address >> 12, XORed with the next one's (glibc's malloc.c)."""
    if here.glibc.minor < 32:
        pytest.skip("links are not mangled before glibc 2.32")
    cached = {address(row["address"]) for row in every if row["state"] == "tcache"}
    answers = ask(here, *(f"blocks at {block:#x} --words 1" for block in sorted(cached)[:40]))
    decoded = 0
    for answer in answers:
        (word,) = answer["data"]["dump"]
        following = int(word["value"], 0) ^ (address(answer["data"]["block"]) >> 12)
        if following:
            assert word["what"] == f"-> tcache block {following:#x} (mangled)" and following in cached
            decoded += 1
        else:
            assert word["what"] == "end of the list (mangled)"
    assert answers and decoded < len(answers)


def test_the_text_fits_and_says_what_is_known(here, every):
    leaked = next(row for row in every if row["reach"] == "leaked" and row["refs"] == 0)
    output = here.text(
        f"blocks at {leaked['address']}",
        "blocks at $sp",
        "blocks list --where 'state == leaked' --sort -size --limit 5",
        "blocks list --where 'type ~ \"^s\"' --limit 5",
    )
    lines = output.out[output.out.index("place:") :].splitlines()  # behind what gdb says at its start
    assert max(map(len, lines)) <= 100, output
    for expected in ("reach:             leaked", "start pointers:    0", "Pointers: none", "Words:"):
        assert expected in lines, output
    assert any(line.startswith("+0x0 * ") for line in lines)


@pytest.mark.parametrize(
    "line, message",
    [
        ("blocks list --where 'size >'", "blocks list: --where: at character 7: expected a number after >, but it"),
        ("blocks list --where sise==1", "blocks list: --where: at character 1: no field 'sise'; did you mean size?"),
        ("blocks list --sort x", "blocks list: --sort: no field 'x'; the fields are size, address,"),
        ("blocks list --columns x", "blocks list: --columns: no field 'x'; the fields are address, size,"),
        ("blocks at 0x10 --words x", "blocks at: --words: 'x' is not a number; write 0 or more, or 0x"),
    ],
)
def test_errors_are_one_line(here, line, message):
    output = here.text(line)
    said = [each for each in output.err.splitlines() if each.startswith(("blocks", "gx", "gdbext"))]
    assert [each.replace("gdbext: ", "") for each in said][0].startswith(message), output
