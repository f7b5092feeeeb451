"""``blocks leaks`` on programs that state of each block what is to be said of it: every board, every allocator.

The program's truth lists every block that is leaked or possibly leaked; all others in its process are reached, libc's
own among them. So the two lists have to be equal, to the block.
"""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.gdb.answers import ask
from tests.support.boards import Board
from tests.support.glibcs import Unavailable
from tests.support.jestages import JeBoard
from tests.support.truth import address

LEAKS = "blocks leaks --list --possible"
LOW, HIGH = 0x7, 0xFF << 56
HARMLESS = ("absent-file", "no-build-id", "types-without-debug-info")
SYSTEM = Board("core", "debug", "system")


def stated(truth, clear=0):
    """What is to be said: role by address of leaked blocks, and the addresses of possibly leaked ones."""
    blocks = truth.details["blocks"]
    seen = [one for one in blocks if not (address(one["clear"]) and not address(one["clear"]) & ~clear)]
    leaked = {address(one["address"]): one["role"] for one in seen if one["state"] == "leaked"}
    cycles = {role: min(at for at in leaked if leaked[at] == role) for role in leaked.values() if "cycle" in role}
    roles = {at: role if "cycle" not in role else _in_cycle(at, cycles[role]) for at, role in leaked.items()}
    return roles, {address(one["address"]) for one in seen if one["state"] == "possibly leaked"}


def _in_cycle(at, lowest):
    return "leak root" if at == lowest else "cycle"


def check(truth, answer, clear=0, known=()):
    """Hold an answer to the truth: each block, and the sums.

    :param known: addresses in blocks of libc's own that are possibly leaked.
    """
    assert [one for one in answer["problems"] if one["kind"] not in HARMLESS] == []
    assert answer["complete"] and answer["data"]["missing"] == []
    leaked, maybe = stated(truth, clear)
    data, totals = answer["data"], answer["data"]["totals"]
    names = {address(one["address"]): one["name"] for one in truth.details["blocks"]}
    said = {address(row["address"]): row["state"] for row in data["leaked"]}
    assert {names.get(at, hex(at)): role for at, role in said.items()} == named(names, leaked)
    said = {address(row["address"]): row["size"] for row in data["possibly_leaked"]}
    own = {at for at, size in said.items() if any(at <= inside < at + size for inside in known)}
    assert {names.get(at, (hex(at), said[at])) for at in said.keys() - own} == {names[at] for at in maybe}
    assert len(own) == len(known)
    sizes = {address(one["address"]): one["usable"] for one in truth.details["blocks"]}
    sizes.update((at, said[at]) for at in own)
    maybe |= own
    assert all(row["size"] == sizes[address(row["address"])] for row in data["leaked"] + data["possibly_leaked"])
    assert totals["leaked_blocks"] == len(leaked) and totals["possibly_leaked_blocks"] == len(maybe)
    assert totals["leaked_bytes"] == sum(sizes[at] for at in leaked)
    assert totals["leak_root_blocks"] == list(leaked.values()).count("leak root")
    assert totals["reached_blocks"] == totals["blocks"] - len(leaked) - len(maybe)


def named(names, roles):
    return {names[at]: role for at, role in roles.items()}


def there(answer, addresses):
    """Which of the addresses are in any list."""
    listed = {address(row["address"]) for row in answer["data"]["leaked"] + answer["data"]["possibly_leaked"]}
    return listed & set(addresses)


@pytest.mark.boards(twin=("leaking", "healthy"), once=("gdbserver",))
def test_each_block_has_its_state(stage, board, twin):
    here = stage("leaks", *(["--healthy"] if twin == "healthy" else []))
    (answer,) = ask(here, LEAKS)
    if board.target == "gcore" and here.glibc.minor >= 42:  # gdb 13 writes zeros where a mapping has a guard in it
        assert not answer["complete"]
        assert any("only zeros in the core" in one["what"] for one in answer["data"]["missing"])
        return
    check(here.truth, answer)
    data = answer["data"]
    if twin == "healthy":
        assert data["leaked"] == data["possibly_leaked"] == data["leak_roots"] == []
        return
    cached = [address(one) for one in here.truth.details["cached"]]
    assert len(cached) == 3 and not there(answer, cached)
    kept = {address(row["address"]): (row["kept_blocks"], row["cycle"]) for row in data["leak_roots"]}
    places = {one["name"]: address(one["address"]) for one in here.truth.details["blocks"]}
    assert kept[places["chain first"]] == (4, 0)
    assert kept[min(places[f"cycle {one}"] for one in ("one", "two", "three"))] == (5, 3)
    assert kept[places["cycle of one"]][0] == 1
    assert kept[places["below root"]] == (3, 0)
    assert kept[places["shared one"]] == kept[places["shared other"]] == (1, 0)
    assert data["totals"]["shared_blocks"] == 1


@pytest.mark.parametrize("kernels", ("native", "reference"))
def test_tags_are_cleared_when_asked(stages, kernels, monkeypatch):
    monkeypatch.setenv("GDBEXT_KERNELS", kernels)
    here = staged(stages, SYSTEM, "leaks")
    answers = ask(here, LEAKS, f"{LEAKS} --clear {LOW:#x}", f"{LEAKS} --clear {LOW | HIGH:#x}")
    for answer, clear in zip(answers, (0, LOW, LOW | HIGH)):
        check(here.truth, answer, clear)


def staged(stages, board, program, *arguments, **how):
    try:
        return stages.get(board, program, arguments, **how)
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("target", ("core", "attach"))
@pytest.mark.parametrize("twin", ((), ("--healthy",)))
def test_a_program_of_32_bits(stages, target, twin):
    """Text of the environment, a canary, a guard may be an address there: one process in 200 has such a word.

    It points into a block, which is then possibly leaked, as it should be. A second process has other addresses.
    """
    try:
        check_32_bits(stages, target, twin, attempt="first")
    except AssertionError:
        check_32_bits(stages, target, twin, attempt="second")


def check_32_bits(stages, target, twin, attempt):
    board, environment = Board(target, "debug", "system"), {"ATTEMPT": attempt}
    here = staged(stages, board, "leaks", *twin, variant="i386", environment=environment)
    assert here.truth.raw["word"] == 4
    tags = 0x3  # the third bit is a part of addresses there
    plain, cleared = ask(here, LEAKS, f"{LEAKS} --clear {tags:#x}")
    check(here.truth, plain)
    check(here.truth, cleared, tags)


@pytest.mark.parametrize("target", ("core", "attach"))
def test_variables_of_a_library_that_came_late(stages, target, tmp_path_factory):
    """Its thread-local ones lie in a block that only the thread's vector leads to, which the thread points into."""
    if not shutil.which("gcc"):
        pytest.skip("needs gcc")
    place = tmp_path_factory.getbasetemp() / "leaks_library.so"
    source = __file__.replace("test_leaks.py", "data/leaks_library.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", place, source], check=True)
    here = staged(stages, Board(target, "debug", "system"), "leaks", "--library", str(place))
    names = {one["name"]: one["state"] for one in here.truth.details["blocks"]}
    assert names["tls of a library"] == names["data of a library"] == "reached"
    (answer,) = ask(here, LEAKS)
    check(here.truth, answer, known=mappings_of_the_loader(here))


def mappings_of_the_loader(here):
    """Return the structure in an aligned part of a block of elf/dl-find_object.c, hence possibly leaked.

    None where the block is aligned itself, which depends on how long names of files are: then it has a start pointer.
    """
    code = """
at = max(int(gdb.parse_and_eval(f"(long)_dlfo_loaded_mappings[{n}]")) for n in (0, 1))
print("at", at, int(gdb.parse_and_eval(f"*(long *){at - 8}")))
"""
    (line,) = (line for line in here.python(code).splitlines() if line.startswith("at "))
    structure, size_of_a_chunk = map(int, line.split()[1:])
    return () if size_of_a_chunk else (structure,)


@pytest.mark.boards(target=("core",), info=("debug", "bare"), glibc=("bullseye", "system", "sid"))
def test_the_tree_of_old_environments_has_a_colour_in_its_pointers(stage, board):
    here = stage("leaks", "--modes", "environment", "--healthy")
    plain, cleared = ask(here, LEAKS, f"{LEAKS} --clear 1")
    assert plain["data"]["leaked"] == [] and plain["data"]["missing"] == []
    nodes_and_values = {24, 40}
    assert {row["size"] for row in plain["data"]["possibly_leaked"]} <= nodes_and_values
    assert plain["data"]["possibly_leaked"]
    check(here.truth, cleared, 1)


# ---- jemalloc ----


@pytest.mark.jeboards(
    target=("core", "attach"),
    symbols=("debug", "gone"),
    build=("5.1.0", "5.2.1", "5.3.0", "5.3.1"),
    twin=("leaking", "healthy"),
)
def test_the_same_on_jemalloc(jestage, jeboard, twin):
    here = jestage("jemalloc_leaks", *(["--healthy"] if twin == "healthy" else []))
    plain, cleared = here.answers(LEAKS, f"{LEAKS} --clear {LOW | HIGH:#x}")
    check(here.truth, plain)
    check(here.truth, cleared, LOW | HIGH)
    if twin == "leaking":
        assert not there(plain, [address(one) for one in here.truth.details["cached"]])


def test_jemalloc_by_the_reference_kernels(jestages, monkeypatch):
    monkeypatch.setenv("GDBEXT_KERNELS", "reference")
    here = jestages(JeBoard("core", "debug", "5.3.0"), "jemalloc_leaks")
    (answer,) = here.answers(LEAKS)
    check(here.truth, answer)
