"""What ``lockwait`` says besides deadlocks and convoys: locks that contradict themselves, waits that nobody ends."""

from __future__ import annotations

import pytest

from tests.gdb.answers import ask

# By mode: what a sentence says (None: nothing), what a problem says (None: there is none).
SAYS = {
    "starved": (
        "1 reader holds the rwlock read_only, 1 thread waits to write, and behind it 2 threads wait to read",
        None,
    ),
    "zeroed": ("2 threads spin at the spinlock zeroed_lock, but no thread mentions it", None),
    "destroyed": (None, "mutex normal: it was destroyed (its kind is -1)"),
    "contradicting": (None, "mutex normal: its word says free, but its owner field says"),
    "overwritten": (None, "mutex normal: it is no mutex (any more): its word is 0x6f6c6548, its kind 0x77777777"),
    "readers": (None, None),
    "abba": (None, None),
    "zoo": (None, None),
}  # fmt: skip
ODD = ("was it ever initialised", "waits to write", "nobody is left to wake")


@pytest.mark.boards(
    mode=tuple(SAYS), target=("attach", "core"), info=("debug",), glibc=("system",), once=("target",)
)
def test_each_is_told_in_its_place(stage, board, mode):
    here = stage("locks", f"--mode={mode}")
    (answer,) = ask(here, "lockwait")
    sentence, problem = SAYS[mode]
    if mode == "zeroed" and board.target == "core":
        sentence = None  # the thread that aborts ran
    odd = [one for one in answer["data"]["sentences"] if any(word in one for word in ODD)]
    assert [one[: len(sentence)] for one in odd] == [sentence] if sentence else odd == []
    ours = [one for one in answer["problems"] if one["kind"] == "lock-state"]
    assert [one["message"][: len(problem)] for one in ours] == [problem] if problem else ours == []
    assert all(one["address"] == here.truth.details["waiters"][0]["lock"] for one in ours)
    waiting = {row["tid"]: row["primitive"] for row in answer["data"]["threads"] if row["primitive"]}
    assert waiting == {one["tid"]: one["primitive"] for one in here.truth.details["waiters"]}


@pytest.mark.boards(target=("attach", "gcore"), info=("debug",), glibc=("system",))
def test_nobody_is_left(stage, board):
    here = stage("locks", "--mode=abandoned")
    text = here.text("lockwait").out
    assert "for the condition condition, and nobody is left to wake it: every thread waits" in text
    assert "1 thread waits for the end of thread 2, which is waiting at a condition in want_signal" in text
    assert "Findings: none" in text


@pytest.mark.boards(target=("attach",), info=("debug",), glibc=("system",))
def test_busy_programs_are_not_odd(stage, board):
    here = stage("locks", "--healthy")
    for _ in range(4):
        (answer,) = ask(here, "lockwait")
        assert not [one for one in answer["data"]["sentences"] if any(word in one for word in ODD)]
        assert answer["problems"] == [] and answer["data"]["findings"] == []


@pytest.mark.boards(target=("core",), info=("debug",), glibc=("system",))
def test_text_fits_the_page_and_tells_all_once(stage, board):
    for mode in ("zoo", "abba", "convoy", "starved"):
        here = stage("locks", f"--mode={mode}")
        lines = here.text("lockwait").out.partition("\nlocks:")[2].splitlines()
        assert len(lines) > 5 and max(map(len, lines)) <= 100
        waiting = [line for line in " ".join(lines).split("  ") if "held by thread" in line and "wait" in line]
        assert len(waiting) == len(set(waiting))
