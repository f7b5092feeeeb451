"""A bound on memory of our own: what needs more is refused with both figures; what is allowed has the usual answers."""

import pytest

import gdbext
from gdbext.errors import TooLargeError
from gdbext.memory.corefile import CoreFile
from gdbext.memory.elf import elfcore
from tests.support.boards import Board
from tests.support.glibcs import Unavailable

LINES = ("triage", "blocks summary", "blocks leaks --list --possible", "blocks types", "blocks retained")
NEEDED = 48  # bytes a block: what is known of it, and marking


@pytest.fixture
def core(stages):
    try:
        return stages.get(Board("core", "debug", "system"), "leaks", ()).core
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_the_slow_way_has_the_usual_answers(core, monkeypatch):
    with gdbext.open_core(core) as session:
        usual = [session.run(line).to_dict() for line in LINES]
    left, let_go = [], CoreFile.let_go
    monkeypatch.setattr(elfcore, "_LARGE", 0)
    monkeypatch.setattr(elfcore, "_MOST_RESIDENT", 0)
    monkeypatch.setattr(CoreFile, "let_go", lambda self: left.append(let_go(self)))
    with gdbext.open_core(core, settings={"max-memory": 1 << 30}) as session:
        assert [session.run(line).to_dict() for line in LINES] == usual
    assert len(left) > len(LINES)


def test_what_needs_more_does_not_begin(core):
    with gdbext.open_core(core) as session:
        blocks = sum(len(heap.blocks) for heap in session.heaps())
    with gdbext.open_core(core, settings={"max-memory": NEEDED * blocks - 1}) as session:
        with pytest.raises(TooLargeError, match="following pointers among .* takes about .* more than the .* allowed"):
            session.run("blocks leaks")
        page = session.triage()
        assert not page.complete and [one.kind for one in page.problems] == ["not-examined"]
        assert session.run("blocks summary").to_dict()["data"]
    with gdbext.open_core(core, settings={"max-memory": NEEDED * blocks}) as session:
        assert session.run("blocks leaks").to_dict()["data"]
        with pytest.raises(TooLargeError, match="which block points at which"):
            session.run("blocks retained")
