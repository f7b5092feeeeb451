"""What leaked in C, named after what it is like, against what the program knows of it."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter

import pytest

from tests.support import gdbrun, preloaded
from tests.support.cache import CHECKOUT
from tests.support.glibcs import Unavailable

SOURCE = CHECKOUT / "tests" / "containers" / "leaked_items.c"
FORMS = {"debug": ("-g", "-O1"), "bare": ("-O1",)}


@pytest.mark.parametrize("form", FORMS)
def test_leaked_structures_are_named_after_their_like(tmp_path, form):
    said, types = leaked(tmp_path, FORMS[form])
    if form == "bare":
        assert {name for name, _ in said.values()} <= {"unknown", "pointers"}
        return
    # A register may still hold the last ones, which then did not leak.
    lost = {label: [at for at in places if at in said] for label, places in truth(tmp_path).items()}
    by_label = {label: Counter(said[at] for at in places) for label, places in lost.items()}
    assert by_label["struct session"][("like struct session", "low")] >= 95
    assert by_label["struct request"][("like struct request", "low")] >= 95
    assert set(by_label["struct numbers"]) == {("unknown", None)}
    wrong = [name for label, names in by_label.items() for name, _ in names if name not in ("unknown", f"like {label}")]
    assert not wrong
    kinds = {one["type"]: one["recognised_by"] for one in types}
    assert kinds["like struct session"] == "similarity"


def test_with_too_many_blocks_it_is_not_looked_for(tmp_path):
    loaded = "python from gdbext.starting import dependencies; dependencies.load()"
    fewer = "python from gdbext import session; session.FEW_BLOCKS = 100"
    said, _ = leaked(tmp_path, FORMS["debug"], "-ex", loaded, "-ex", fewer)
    assert {name for name, _ in said.values()} <= {"unknown", "pointers"}


def leaked(folder, flags, *before):
    """Return type and confidence of the blocks that the program notes, and the table of types.

    :param before: gdb's words before the command.
    """
    try:
        gdbrun.gdb_program()
    except Unavailable as reason:
        pytest.skip(str(reason))
    if not shutil.which("gcc"):
        pytest.skip("test programs need gcc")
    program, core, answer = (folder / name for name in ("items", "core", "answer.json"))
    subprocess.run(["gcc", "-Wall", "-Werror", *flags, str(SOURCE), "-o", str(program)], check=True)
    run = ["-ex", f"run {folder / 'truth'}", "-ex", f"generate-core-file {core}"]
    gdbrun.run_gdb([str(program), *run], cwd=folder)
    asked = ["-ex", f"gx blocks leaks --list --limit 0 --json={answer}"]
    output = preloaded.run_gdb([str(program), str(core), *gdbrun.load_pack(), *before, *asked])
    data = gdbrun.read_envelope(answer, output)["data"]
    places = {at for each in truth(folder).values() for at in each}
    found = {int(one["address"], 16): (one["type"], one["confidence"]) for one in data["leaked"]}
    return {at: one for at, one in found.items() if at in places}, data["by_type"]


def truth(folder):
    found = {}
    for line in (folder / "truth").read_text().splitlines():
        label, at = line.split("\t")
        found.setdefault(label, []).append(int(at, 16))
    return found
