"""The glibc heap of every test program on every board, against the program's ledger and malloc_info."""

from __future__ import annotations

import pytest

from tests.gdb.answers import ask
from tests.support.truth import address, addresses

# Programs whose heap is sound, with their arguments; each must reconcile to the byte.
ABSENT = ("absent-file", "no-build-id")  # files that a core only names
# Small, because gdbserver moves some 2 MB a second.
SOUND = (
    "arena_proliferation --threads=6 --arena-bytes=262144",
    "fastbins",
    "foreign_sbrk",
    "healthy_server",
    "mmapped_blocks",
    "noncontiguous",
    "shrink_realloc --buffers=3 --buffer=1048576",
    "tcache_full",
    "two_waves --first=2097152 --second=524288",
)
HEALTHY = (
    "arena_proliferation --healthy",
    "double_free --healthy",
    "fastbins --healthy",
    "foreign_sbrk --healthy",
    "free_list_cycle --healthy",
    "healthy_server",
    "inside_malloc --healthy",
    "mmapped_blocks --healthy",
    "noncontiguous --healthy",
    "overrun --healthy",
    "shrink_realloc --healthy",
    "stranded_arena --healthy",
    "tcache_full --healthy",
    "trim --healthy",
    "two_waves --healthy",
)
# Boards of tests whose point is the heap's contents: how memory is read is the business of the others.
STILL = ("attach", "gcore", "core")
SOME = ("bullseye", "system", "sid")  # the oldest, and what has changed most since
FEW = {"target": ("attach", "core"), "info": ("debug", "bare"), "once": ("target", "info")}
LOOK = ("target", "info", "glibc")
FINDINGS = {
    "arena_proliferation": "arena-proliferation",
    "shrink_realloc": "shrink-realloc",
    "stranded_arena": "fragmentation",
    "two_waves": "fragmentation",
}


def staged(stage, program):
    name, *arguments = program.split()
    return stage(name, *arguments)


def caches_of(tcache):
    return tcache["data"]["threads"]


@pytest.mark.fresh
@pytest.mark.boards(program=SOUND, once=("program", "gdbserver"))
def test_every_byte_agrees_with_the_program_and_malloc_info(stage, board, program):
    here = staged(stage, program)
    names = ("glibc arenas", "glibc bins", "glibc tcache", "glibc mmapped", "blocks summary", "rss")
    envelopes = dict(zip(names, ask(here, *names)))
    for envelope in envelopes.values():
        assert [problem for problem in envelope["problems"] if problem["kind"] not in ABSENT] == []
        assert envelope["complete"]
    data = {name: envelope["data"] for name, envelope in envelopes.items()}
    check_arenas(here.truth, data["glibc arenas"]["arenas"], data["glibc bins"]["bins"])
    check_blocks(here.truth, data["blocks summary"]["totals"], len(data["glibc tcache"]["threads"]))
    mmapped, ledger = data["glibc mmapped"], here.truth.ledger
    assert mmapped["blocks"] == mmapped["expected_blocks"] == ledger["mmapped"]["blocks"]
    # Since 2.43 every mremap adds a header to mmapped_mem that no mapping has.
    drift = mmapped["expected_bytes"] - mmapped["bytes"]
    assert drift == 0 or (here.truth.glibc >= "2.43" and drift % 16 == 0 and drift <= 3 * 16)
    assert mmapped["bytes"] == sum(row["mapped"] for row in mmapped["chunks"])
    check_rss(board, data["rss"])


def check_arenas(truth, arenas, bins):
    """Each arena is walked to its last byte; free bytes are malloc_info's."""
    word = truth.raw["word"]
    free = {row["address"]: row["top_chunk_bytes"] for row in arenas}
    for row in arenas:
        assert row["walked_bytes"] == row["system_mem"]
        pieces = ("chunk_bytes", "top_chunk_bytes", "overhead_bytes", "foreign_bytes")
        assert row["walked_bytes"] == sum(row[piece] for piece in pieces)
        assert row["skipped_bytes"] == 0
    for row in bins:
        assert row["whole"]
        free[row["arena"]] += row["bytes"] + word * row["count"]
    ours = sorted((row["system_mem"], free[row["address"]]) for row in arenas)
    info = truth.malloc_info.arenas
    assert ours == sorted((arena.system_bytes, arena.fast_bytes + arena.rest_bytes) for arena in info)


def check_blocks(truth, totals, structures):
    """The ledger does not see the structures that malloc takes for its own thread caches."""
    assert structures <= truth.allocating_threads
    live = truth.ledger["live"]
    assert totals["used_blocks"] == live["blocks"] + structures
    extra = totals["used_bytes"] - live["bytes"]
    assert structures == 0 if extra == 0 else extra % structures == 0


def check_rss(board, rss):
    assert rss["residual"] == 0
    assert sum(entry["bytes"] for entry in rss["entries"]) == rss["total"]
    live = board.target == "attach"
    assert all((entry["resident"] is not None) == live for entry in rss["entries"])


@pytest.mark.boards(
    program=HEALTHY, target=("attach", "core"), info=("debug", "bare"), glibc=("bullseye", "sid"), once=LOOK
)
def test_a_healthy_twin_has_no_finding(stage, board, program):
    here = staged(stage, program)
    triage, check = ask(here, "triage", "glibc check")
    assert triage["data"]["findings"] == []
    assert check["data"]["damage"] == []


@pytest.mark.boards(program=tuple(FINDINGS), target=STILL, glibc=SOME, once=LOOK)
def test_a_broken_program_has_its_finding_and_no_other(stage, board, program):
    (triage,) = ask(stage(program), "triage")
    found = [finding["kind"] for finding in triage["data"]["findings"]]
    assert found == [FINDINGS[program]]
    finding = triage["data"]["findings"][0]
    assert finding["bytes"] >= 16 << 20
    assert finding["evidence"] and finding["remedy"]


@pytest.mark.boards(**FEW)
def test_an_overrun_is_placed(stage, board):
    here = stage("overrun")
    check, triage = ask(here, "glibc check", "triage")
    details = here.truth.details
    damage = [row for row in check["data"]["damage"] if row["kind"] == "chunk-size"]
    assert [address(row["address"]) for row in damage] == [address(details["damaged_chunk"])]
    message = damage[0]["message"]
    assert hex(details["size_now"]) in message
    assert f"chunk before it at {address(details['before_chunk']):#x}" in message
    assert f"resynchronised at {address(details['next_good_chunk']):#x}" in message
    assert [finding["kind"] for finding in triage["data"]["findings"]] == ["corruption"]


@pytest.mark.boards(**FEW)
def test_a_double_free_is_named(stage, board):
    here = stage("double_free")
    (check,) = ask(here, "glibc check")
    details = here.truth.details
    named = " ".join(row["message"] for row in check["data"]["damage"] if row["kind"] == "double-free")
    assert f"{address(details['tcache_block']):#x}" in named
    if details["fastbin_twice"]:
        word = here.truth.raw["word"]
        assert f"{address(details['fastbin_block']) - 2 * word:#x}" in named


DAMAGES = ("cycle", "fd", "bk", "size", "top", "prev_size")
KINDS = {
    "cycle": {"bin-cycle"},
    "fd": {"bin-link"},
    "bk": {"bin-link"},
    "size": {
        "chunk-size", "prev-size", "list-chunk", "free-unlisted", "bin-in-use", "chunk-flags", "bin-order",
        "bin-nextsize",
    },
    "top": {"top-size"},
    "prev_size": {"prev-size"},
}


@pytest.mark.boards(damage=DAMAGES, bin=("unsorted", "small", "large"), target=STILL, once=LOOK)
def test_damage_to_a_free_list_is_found(stage, board, damage, bin):
    here = stage("free_list_cycle", f"--damage={damage}", f"--bin={bin}")
    (check,) = ask(here, "glibc check")
    rows = check["data"]["damage"]
    assert {row["kind"] for row in rows} & KINDS[damage]
    assert {row["kind"] for row in rows} <= KINDS[damage] | {"bin-cycle", "bin-link", "bin-size"}
    chunk = f"{address(here.truth.details['damaged_chunk']):#x}"
    assert any(address(row["address"]) == int(chunk, 16) or chunk in row["message"] for row in rows)


@pytest.mark.boards(**FEW)
def test_a_core_taken_inside_malloc(stage, board):
    here = stage("inside_malloc")
    arenas, check, triage = ask(here, "glibc arenas", "glibc check", "triage")
    flux = [row["address"] for row in arenas["data"]["arenas"] if row["in_flux"]]
    assert addresses(flux) == [address(here.truth.details["arena"])]
    assert check["data"]["damage"] == []
    assert triage["data"]["findings"] == []


@pytest.mark.boards(program=("trim", "trim --healthy"), target=STILL, once=("target", "info"))
def test_trim_says_what_malloc_trim_returned(stage, board, program):
    here = staged(stage, program)
    (trim,) = ask(here, "glibc trim")
    details, rows = here.truth.details, trim["data"]["arenas"]
    assert sum(row["of_top"] for row in rows) == details["of_top"]
    assert sum(row["in_bins"] for row in rows) == details["released"] - details["top_resident"]
    assert trim["data"]["trimmable_bytes"] == sum(row["trimmable_bytes"] for row in rows)
    assert sum(row["zero_bytes"] for row in rows) == 0  # all of it was written to


@pytest.mark.boards(**FEW)
def test_foreign_bytes_are_counted(stage, board):
    here = stage("foreign_sbrk")
    (arenas,) = ask(here, "glibc arenas")
    (main,) = [row for row in arenas["data"]["arenas"] if row["kind"] == "main"]
    gaps = sum(size for _, size in here.truth.details["gaps"])
    assert gaps <= main["foreign_bytes"] < gaps + 4 * 4096


@pytest.mark.boards(**FEW)
def test_caches_of_all_threads(stage, board):
    here = stage("tcache_full")
    (tcache,) = ask(here, "glibc tcache")
    owners = [row["number"] for row in caches_of(tcache)]
    assert None not in owners and len(set(owners)) == len(owners)
    for row in tcache["data"]["classes"]:
        assert row["counted"] == row["count"]
