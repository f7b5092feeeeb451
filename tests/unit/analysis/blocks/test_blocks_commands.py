"""``blocks list`` and ``blocks at`` as commands: what they work out, when, and what they say where they do not."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from gdbext.analysis.reach.model import PLAIN, Reading
from gdbext.errors import TooLargeError, UsageError
from gdbext.heap.model import State
from gdbext.progress import SILENT
from tests.unit.analysis.heaps import reaching
from tests.unit.analysis.test_commands import Arguments, blocks

from gdbext.commands import reachability as reaching_of  # noqa: E402 isort: skip  mounted by test_commands


@pytest.fixture
def context(maker):
    """A core with three blocks, and a list of what was asked of it."""
    maker.span(0x10000, [(100, State.IN_USE), (200, State.SMALL), (300, State.IN_USE)])
    heap, target = maker.heap(), maker.target()
    offered, asked = reaching([heap], target), []

    def noting(name):
        def call(*arguments):
            asked.append((name, *(each for each in arguments if isinstance(each, Reading))))
            return offered[name](*arguments)

        return call

    calls = {name: noting(name) for name in ("reach", "block_types")}
    return SimpleNamespace(
        target=target,
        heaps=lambda: [heap],
        progress=SILENT,
        evaluate=lambda text: int(text, 0),
        asked=asked,
        **{**offered, **calls},
    )


@pytest.mark.parametrize(
    "given, asked",
    [
        ({}, []),
        ({"where": "size > 100 and state == free", "sort": "-size", "columns": "size,thread"}, []),
        ({"where": "state == leaked"}, [("reach", PLAIN)]),
        ({"where": "refs == 0", "clear": "0x7"}, [("reach", Reading(7))]),
        ({"where": "refs == 0", "clear": "0x1", "mangled": True}, [("reach", Reading(1, True))]),
        ({"sort": "type"}, [("reach", PLAIN), ("block_types",)]),
        ({"columns": "confidence"}, [("reach", PLAIN), ("block_types",)]),
        ({"columns": "confidence", "count": True}, []),
    ],
)
def test_lists_work_out_only_what_they_need(context, given, asked):
    blocks.list_blocks(context, Arguments(**given))
    assert context.asked == asked


@pytest.mark.parametrize("clear", ["0xffffffffffffffff", "0x1000", "0xff0000"])
def test_bits_that_tell_blocks_apart_are_no_tags(context, clear):
    with pytest.raises(UsageError) as raised:
        blocks.list_blocks(context, Arguments(where="state == leaked", clear=clear))
    assert str(raised.value) == (
        f"--clear: {clear} would clear bits that distinguish blocks; "
        "name the tags alone: 0x7 in low bits, 0xff00000000000000 in the top byte"
    )


def test_what_is_no_number_of_bits_names_the_option(context):
    def evaluate(text):
        raise UsageError(f"cannot evaluate {text!r}")

    context.evaluate = evaluate
    with pytest.raises(UsageError, match="^--clear: cannot evaluate 'x'$"):
        blocks.list_blocks(context, Arguments(where="state == leaked", clear="x"))


def test_a_list_by_a_query(context):
    found = blocks.list_blocks(context, Arguments(where="state == leaked and refs == 0", sort="-size"))
    assert [(row.size, row.reach, row.refs) for row in found.data.blocks] == [(312, "leaked", 0), (104, "leaked", 0)]
    counted = blocks.list_blocks(context, Arguments(where="size >= 300", count=True, state="used"))
    assert (counted.data.matching_blocks, counted.data.matching_bytes) == (1, 312)


@pytest.mark.parametrize("given", [{"where": "size"}, {"sort": "x"}, {"columns": "x"}])
def test_what_cannot_be_understood_asks_for_nothing(context, given):
    with pytest.raises(UsageError):
        blocks.list_blocks(context, Arguments(**given))
    assert context.asked == []


def test_an_address_in_a_core_is_told_with_reachability(context):
    report = blocks.describe(context, Arguments("0x10010"))
    assert report.data.reach == "leaked" and context.asked == [("reach", PLAIN), ("block_types",)]
    assert len(list(report.data.dump)) == 1  # nothing of it can be read


def test_a_large_process_is_not_searched_unless_it_is_asked_for_or_known(context, monkeypatch):
    monkeypatch.setattr(reaching_of, "FEW_BLOCKS", 2)
    context.target = replace(context.target, live=True)
    report = blocks.describe(context, Arguments("0x10010"))
    assert (report.data.reach, context.asked) == (None, [])
    assert any("--reach works them out" in note for note in report.notes)
    assert blocks.describe(context, Arguments("0x10010", reach=True)).data.reach == "leaked"
    context.known_reach = context.reach
    assert blocks.describe(context, Arguments("0x10010")).data.reach == "leaked"
    monkeypatch.setattr(reaching_of, "FEW_BLOCKS", 3)
    context.known_reach = lambda reading: None
    assert blocks.describe(context, Arguments("0x10010")).data.reach == "leaked"


def test_types_of_a_large_core_are_not_looked_for_unless_they_are_asked_for(context, monkeypatch):
    monkeypatch.setattr(reaching_of, "FEW_BLOCKS", 2)
    report = blocks.describe(context, Arguments("0x10010"))
    assert (report.data.reach, report.data.type, context.asked) == ("leaked", None, [("reach", PLAIN)])
    assert "types take a while in so large a heap: --reach works them out" in report.notes
    assert blocks.describe(context, Arguments("0x10010", reach=True)).data.type == "unknown"


def test_a_process_too_large_to_be_copied_is_told_without(context):
    def too_large(reading):
        raise TooLargeError("more than 4 GiB to copy", "set gx copied-memory")

    context.reach = too_large
    report = blocks.describe(context, Arguments("0x10010"))
    assert report.data.reach is None
    assert "no reachability, type and pointers: more than 4 GiB to copy; set gx copied-memory" in report.notes
    with pytest.raises(TooLargeError):
        blocks.describe(context, Arguments("0x10010", reach=True))


def test_types_that_were_stopped_are_left_out(context):
    def stopped(reach):
        raise KeyboardInterrupt

    context.block_types = stopped
    report = blocks.describe(context, Arguments("0x10010"))
    assert (report.data.reach, report.data.type) == ("leaked", None)
    assert "stopped while types were looked for: they are left out" in report.notes


def test_without_a_heap_nothing_is_searched(context):
    context.heaps = list
    assert "anonymous memory (0x10000-" in blocks.describe(context, Arguments("0x10010", words=1)).data.place
    assert context.asked == []


def test_how_many_words_are_dumped(context):
    assert blocks.describe(context, Arguments("0x10010", words=4)).data.dump.total is None
    rows = [list(blocks.describe(context, Arguments("0x10010", words=words)).data.dump) for words in (4, 0, None)]
    assert [sum(row.words for row in each) for each in rows] == [4, 13, 13]
