"""The commands over these analyses, without gdb: options in, the right analysis called."""

import os
from types import SimpleNamespace

import pytest

import gdbext
from gdbext._mount import mount
from gdbext.debuginfo import NoDebugInfo
from gdbext.errors import UsageError
from gdbext.heap.jemalloc.heap import find_heaps
from gdbext.heap.model import Blocks, Heap, State
from gdbext.progress import SILENT
from gdbext.report import Problem
from gdbext.session import Session
from tests.support.jeworld import laid

mount(os.path.dirname(gdbext.__file__))

from gdbext.commands import blocks, jemalloc, rss, summary, triage  # noqa: E402


class Arguments:
    def __init__(self, expression="", **values):
        self.expression = expression
        self._values = {name.replace("_", "-"): value for name, value in values.items()}

    def value(self, name):
        return self._values.get(name)

    def flag(self, name):
        return name in self._values


@pytest.fixture
def context(maker):
    maker.span(0x10000, [(100, State.IN_USE), (200, State.SMALL), (300, State.IN_USE), (100, State.TOP)])
    heap, target = maker.heap(), maker.target()
    session = Session(lambda: target, NoDebugInfo())
    session.heaps = lambda: [heap]
    return session


def test_summary_rss_and_triage(context):
    assert summary.summarise(context, Arguments()).data.totals.used_blocks == 2
    assert rss.account(context, Arguments()).data.residual == 0
    assert triage.examine(context, Arguments()).data.verdict == "No findings."


def test_list_with_all_filters(context):
    arguments = Arguments(
        "0x10000-0x20000", state="used", min_size=64, max_size=200, arena="0xa000"
    )
    report = blocks.list_blocks(context, arguments)
    assert [row.size for row in report.data.blocks] == [104]
    assert blocks.list_blocks(context, Arguments()).data.matching_blocks == 4


def test_at(context):
    assert blocks.describe(context, Arguments("0x10010")).data.state == "in use"


@pytest.mark.parametrize(
    "text, bounds",
    [("", (None, None)), ("0x10-0x20", (16, 32)), (" 10 - 20 ", (10, 20)), ("0-0X10", (0, 16))],
)
def test_ranges(text, bounds):
    assert blocks.read_range(text) == bounds


@pytest.mark.parametrize(
    "text, message",
    [
        ("heap", "'heap' is not a range; write START-END"),
        ("0x10-", "is not a range"),
        ("0x20-0x10", "is empty or beyond any address"),
        ("0x10-0x10", "is empty"),
        ("0-0x10000000000000001", "beyond any address"),
    ],
)
def test_what_is_no_range(text, message):
    with pytest.raises(UsageError, match=message):
        blocks.read_range(text)


@pytest.mark.parametrize("command", ["arenas", "bins", "extents", "large", "tcache", "decay", "check"])
def test_a_jemalloc_that_could_not_be_read_is_told_beside_one_that_could(command):
    target = laid().target()
    found = find_heaps(target, SILENT)
    lost = Heap("jemalloc (not read)", Blocks.empty(), (), problems=[Problem("no-layout", 16, "x")], complete=False)
    unread = [lost]
    both = SimpleNamespace(
        target=target, settings={}, heaps_of=lambda family, name: found, unread=lambda family: unread
    )
    run = getattr(jemalloc, command)
    told = run(both, Arguments())
    assert not told.complete and lost.problems[0] in told.problems
    named = run(both, Arguments(heap="jemalloc"))
    assert named.complete and lost.problems[0] not in named.problems
    unread.clear()
    assert run(both, Arguments()).complete
