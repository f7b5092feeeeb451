"""The finding ``leak`` of ``triage``: when it is told, when it is not, and every word of both."""

from dataclasses import replace

import numpy as np
import pytest

from gdbext.abi import I386, X86_64
from gdbext.analysis.beyond import NOTHING
from gdbext.analysis.leaks.search import Ports, search
from gdbext.analysis.reach.mark import read_reach
from gdbext.analysis.reach.model import PLAIN
from gdbext.analysis.types.model import HIGH, BlockTypes, TypeName
from gdbext.errors import NoHeapError, TooLargeError
from gdbext.memory import Region
from gdbext.progress import SILENT, Deadline, checked
from gdbext.report import Confidence, Problem, Severity
from tests.support.reachworld import DATA, HEAP, ReachWorld

TOLD = {"min-finding-bytes": 1, "min-finding-floor": 1}
HIGH_TAG = 0x1234 << 48


def leaky(abi=X86_64):
    world = ReachWorld(abi)
    blocks = [world.block(HEAP + 0x100 * at, 64) for at in range(1, 7)]
    world.put(DATA, blocks[0], blocks[1] + 8)
    world.put(blocks[3], blocks[4])
    return world, blocks


def look(world, settings=TOLD, asked=False, progress=SILENT, target=None, **ports):
    target, heaps = target or world.target(), [world.heap()]
    made = {
        "reach": lambda at, most: read_reach(target, heaps, PLAIN, at, most),
        "tagged": lambda reading, at: read_reach(target, heaps, reading, at),
        "types": lambda reach, at: None,
    }
    return search(target, heaps, settings, Ports(**{**made, **ports}), progress, asked)


def process():
    world = leaky()[0]
    return replace(world.target(), live=True, local_pid=7)


def why(beyond):
    """Return why there is no answer; a problem and an incomplete answer come of it."""
    (one,) = beyond.unexamined
    assert one.what == "leaks" and not beyond.complete and not beyond.findings
    assert one.problem.kind == "not-examined" and one.why in one.problem.message and one.next in one.problem.message
    return one.why


def told(beyond):
    (evidence,) = beyond.evidence
    assert evidence.subject == "leaks"
    return evidence.message


@pytest.mark.parametrize("abi", [X86_64, I386], ids=["64", "32"])
def test_the_finding(abi):
    world, blocks = leaky(abi)
    beyond = look(world)
    (finding,) = beyond.findings
    assert (finding.kind, finding.severity, finding.confidence) == ("leak", Severity.WARNING, Confidence.HIGH)
    assert finding.bytes == 4 * 64
    assert finding.summary == "256 B leaked in 4 blocks, kept by 3 leak roots"
    assert finding.evidence == (
        "of 6 blocks in use 4 leaked; 1 reached from roots, 1 possibly leaked",
        "most by size: 4 blocks of 64 bytes",
        f"largest leak root {blocks[3]:#x} (64 bytes, -> test block {blocks[4]:#x}) keeps 2 blocks, 128 B",
        f"before it in memory: {blocks[2]:#x} (64 bytes, zeros), leaked",
        f"before it in memory: {blocks[1]:#x} (64 bytes, zeros), possibly leaked",
        f"after it in memory: {blocks[5]:#x} (64 bytes, zeros), leaked",
    )
    assert "blocks leaks" in finding.remedy and f"`blocks at {blocks[3]:#x}` shows the largest" in finding.remedy
    assert told(beyond) == "of 6 blocks in use 4 leaked, 1 possibly leaked" and beyond.complete


def test_its_types():
    world, blocks = leaky()
    names = [TypeName("unknown", "unknown"), TypeName("Session", "vtable")]
    code = np.array([0, 0, 0, 1, 1, 1], np.uint32)
    (finding,) = look(world, types=lambda *_: BlockTypes(names, code, np.full(6, HIGH, np.uint8))).findings
    assert finding.summary == (
        "256 B leaked in 4 blocks, kept by 3 leak roots, most of it by 2 blocks of type Session"
    )
    assert finding.evidence[1] == "type Session (vtable): 3 blocks, 192 B; 2 leak roots keep 192 B"
    assert f"{blocks[3]:#x} (64 bytes, Session, -> test block" in finding.evidence[3]


def test_a_cycle_is_named():
    world, blocks = leaky()
    world.put(blocks[4], blocks[3])
    (finding,) = look(world).findings
    assert finding.evidence[2].endswith("keeps 2 blocks, 128 B, represents a cycle of 2")


def test_far_blocks_are_no_neighbours():
    world = ReachWorld()
    world.put(DATA, world.block(HEAP + 0x100))
    far = world.heap().spans[0].end + 0x20000
    world.map(Region(far & ~0xFFF, (far & ~0xFFF) + 0x1000))
    world.block(far, 64)
    (finding,) = look(world).findings
    assert not any("in memory" in line for line in finding.evidence)


def test_healthy_and_small_ones_are_silent():
    world = ReachWorld()
    world.put(DATA, world.block(HEAP + 0x100))
    beyond = look(world)
    assert not beyond.findings and told(beyond) == "of 1 block in use 0 leaked, 0 possibly leaked"
    beyond = look(leaky()[0], {})
    assert not beyond.findings and told(beyond) == (
        "of 6 blocks in use 4 leaked, 1 possibly leaked: 256 B leaked, too little for a finding; "
        "blocks leaks shows which"
    )


def test_much_that_possibly_leaked_is_a_note():
    world = ReachWorld()
    world.put(DATA, *(world.block(HEAP + 0x100 * at, 64) + 8 for at in range(1, 7)))
    (note,) = look(world).notes
    assert note == (
        "384 B in 6 blocks possibly leaked: interior pointers alone lead there, as from containers, headers before "
        "objects, or by chance. blocks leaks --possible lists them"
    )
    assert look(world).complete and not look(world, {}).notes


def test_missing_roots_keep_it_silent_unless_asked():
    world = leaky()[0]
    world.thread(stack_pointer=None)
    beyond = look(world)
    assert not beyond.findings
    assert told(beyond) == "of 6 blocks in use 4 leaked, 1 possibly leaked"
    assert why(beyond) == "256 B look leaked, but registers and stack of thread 1 cannot be read"
    (finding,) = look(world, asked=True).findings
    assert finding.confidence is Confidence.MEDIUM
    assert finding.evidence[0] == (
        "inconclusive: registers and stack of thread 1 could not be examined, and what only that points at looks leaked"
    )


def test_tagged_pointers_are_no_leak():
    world, blocks = leaky()
    world.put(DATA + 0x100, *(block | HIGH_TAG for block in blocks))
    beyond = look(world)
    assert not beyond.findings
    assert why(beyond) == (
        "256 B look leaked, but pointers with tags in their high bits lead to all but 0 B of it"
    )
    assert beyond.unexamined[0].next == "blocks leaks --clear 0xffff000000000000"
    (finding,) = look(world, asked=True).findings
    assert finding.confidence is Confidence.MEDIUM


def test_a_process_is_searched_for_so_much_cpu_time(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("gdbext.progress.time.thread_time", lambda: clock[0])

    def slow(progress, most):
        clock[0] = 11.0
        progress.at("following pointers", 0, None)

    beyond = look(leaky()[0], target=process(), reach=slow)
    assert why(beyond) == "stopped after 10 s of CPU time" and beyond.unexamined[0].next == "triage --leaks"
    clock[0] = 0.0
    world = leaky()[0]

    def slow_and_done(progress, most):
        slow(progress, most)
        return world.reach()

    assert look(world, asked=True, target=process(), reach=slow_and_done).findings
    none = look(leaky()[0], {**TOLD, "leak-search-seconds": 0}, target=process())
    assert why(none) == "set gx leak-search-seconds is 0"


def test_a_core_is_searched_whatever_the_clock_says(monkeypatch):
    monkeypatch.setattr("gdbext.progress.time.thread_time", iter(range(0, 1 << 20, 1 << 10)).__next__)
    assert look(leaky()[0], {**TOLD, "leak-search-seconds": 0}).findings


def test_a_limit_of_blocks():
    settings = {**TOLD, "leak-search-blocks": 5}
    assert why(look(leaky()[0], settings)) == "6 blocks in use, set gx leak-search-blocks is 5"
    assert look(leaky()[0], settings, asked=True).findings
    assert look(leaky()[0], {**TOLD, "leak-search-blocks": 6}).findings


@pytest.mark.parametrize("least", [{"leak-search-blocks": 1}, {"leak-search-seconds": 0}])
@pytest.mark.parametrize("bytes", [1, 1 << 30])
def test_a_heap_too_small_to_hide_a_finding_is_not_missed(least, bytes):
    settings = {"min-finding-bytes": bytes, "min-finding-share": 101, "min-finding-floor": 1, **least}
    beyond = look(leaky()[0], settings, target=process())
    assert not beyond.findings and beyond.complete is (bytes > 1)
    assert bytes == 1 or told(beyond).startswith("not examined: ")


class Stopping:
    """Progress that is interrupted at its n-th moment."""

    def __init__(self, moment):
        self.left = moment

    def at(self, doing, done, total):
        self.check()

    def check(self):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("moment", range(1, 51))
def test_an_interrupt_at_any_moment_never_looks_healthy(moment):
    progress = Stopping(moment)
    with checked(progress.check):
        beyond = look(leaky()[0], progress=progress)
    assert beyond.findings or why(beyond) == "interrupted"


def test_no_time_for_tags_and_types_costs_confidence(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("gdbext.progress.time.thread_time", lambda: clock[0])

    def slow(_, progress):
        clock[0] = 11.0
        progress.at("", 0, None)

    (finding,) = look(leaky()[0], tagged=slow, types=slow).findings
    assert finding.confidence is Confidence.MEDIUM


@pytest.mark.parametrize("port", ["reach", "tagged", "types"])
def test_the_user_stops_it(port):
    def stopped(*_):
        raise KeyboardInterrupt

    assert why(look(leaky()[0], **{port: stopped})) == "interrupted"


def test_a_deadline_that_was_lifted_lets_work_go_on(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("gdbext.progress.time.thread_time", lambda: clock[0])
    deadline = Deadline(SILENT, 5)
    clock[0] = 6.0
    with pytest.raises(KeyboardInterrupt):
        deadline.at("", 0, None)
    deadline.lift()
    deadline.at("", 0, None)


def test_how_much_may_be_copied():
    seen = []

    def refused(progress, most):
        seen.append(most)
        raise TooLargeError("5 GiB of the process would be copied", "hint")

    world, settings = leaky()[0], {**TOLD, "copied-memory": 4 << 30}
    live = replace(world.target(), live=True)
    beyond = look(world, settings, target=live, reach=refused)
    assert why(beyond) == "5 GiB of the process would be copied"
    look(world, settings, target=replace(live, local_pid=7), reach=refused)
    look(world, {**TOLD, "copied-memory": 0}, target=live, reach=refused)
    look(world, settings, target=live, reach=refused, asked=True)
    assert seen == [128 << 20, 4 << 30, 0, 0]


def test_no_heap_and_a_heap_that_was_interrupted():
    def none(*_):
        raise NoHeapError("none")

    world = leaky()[0]
    assert why(look(world, reach=none)) == "none"
    assert search(world.target(), [], TOLD, Ports(none, none, none), SILENT) == NOTHING
    heap = replace(world.heap(), problems=[Problem("interrupted", None, "stopped")])
    for settings in (TOLD, {}):  # how much is in use is not known
        beyond = search(world.target(), [heap], settings, Ports(none, none, none), SILENT)
        assert why(beyond) == "reading the test heap was interrupted"


def test_thresholds_are_of_writable_memory():
    world = leaky()[0]
    share = {**TOLD, "min-finding-bytes": 1 << 30, "min-finding-share": 1}
    assert not look(world, share).findings  # 256 of 48 KiB
    more = ReachWorld()
    for at in range(1, 9):
        more.block(HEAP + 0x100 * at, 64)
    assert look(more, share).findings
