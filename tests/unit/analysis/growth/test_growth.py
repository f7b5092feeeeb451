"""Series of samples and what is found in them, of samples that are made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gdbext.analysis.growth import sample as kinds
from gdbext.analysis.growth.census import Ages, Generation
from gdbext.analysis.growth.report import Of, compare
from gdbext.analysis.growth.sample import OTHER, Limit, ProcessId, Remark, Row, Sample
from gdbext.analysis.growth.series import Recording
from gdbext.analysis.growth.trend import Shape
from gdbext.report import Severity, Status, exit_status
from gdbext.wording import span_text

MIB = 1 << 20
NOTHING = Of()
PROCESS = ProcessId(7, "server", "ab", None, None, "mark")


def sample(at, **rows):
    named = {kind.replace("_", "-"): [Row(*row) for row in each] for kind, each in rows.items()}
    return Sample(PROCESS, 1000.0 + at * 10, None, True, "resident", named)


def growing(count, **more):
    """Samples in which sessions grow by a MiB each, beside a cache that is full after three."""
    found = []
    for at in range(count):
        sessions, cached = MIB * (at + 1), MIB * min(at, 3)
        rows = {
            "type": [("struct session", 4096 * (at + 1), sessions), ("struct cached", 4096 * min(at, 3), cached)],
            "size": [("256", 8192, sessions + cached)],
            "heap": [("glibc in use", 8192, sessions + cached), ("glibc free", 3, 5000)],
            "total": [("memory", None, 3 * MIB + sessions + cached), ("threads", 3, None), ("arenas", 1, None)],
            "root": [("global sessions", 4096 * (at + 1), sessions), ("global cache", 9, cached)],
        }
        found.append(sample(at, **{**rows, **{kind: make(at) for kind, make in more.items()}}))
    return found


def compared(samples, known=NOTHING):
    return compare(samples, [f"core.{at}" for at in range(len(samples))], known)


def found_in(samples, known=NOTHING):
    return [(one.kind, one.severity, one.details.get("key")) for one in compared(samples, known).data.findings]


def test_what_grows_is_found_and_what_fills_is_not():
    report = compared(growing(10), Of(find_path=lambda kind, key, sure: f"global head of {key}"))
    (finding,) = report.data.findings
    assert (finding.kind, finding.severity, finding.bytes) == ("growth", Severity.WARNING, 9 * MIB)
    assert "struct session grew by 9 MiB in 90 s, 360 MiB per hour" in finding.summary
    assert "kept by global head of struct session" in finding.summary
    assert finding.details["per_hour"] == 360 * MIB
    assert exit_status(report) is Status.FINDINGS and report.data.verdict.startswith("1 finding: struct session")


def test_three_samples_give_a_remark_and_status_0():
    report = compared(growing(3))
    assert {one.severity for one in report.data.findings} == {Severity.INFO}
    assert exit_status(report) is Status.CLEAN
    assert "3 samples cannot tell growth from a start" in report.data.verdict


def test_what_is_not_complete_is_said():
    samples = growing(3)
    samples[1] = replace(samples[1], complete=False, remarks=[Remark("truncated-core", "cut short")])
    report = compared(samples)
    assert exit_status(report) is Status.PARTIAL
    assert [one.message for one in report.problems] == ["sample 2: cut short"]


def test_nothing_grows_where_nothing_does():
    samples = [sample(at, type=[("struct a", 5, 5 * MIB)], total=[("memory", None, 9 * MIB)]) for at in range(10)]
    report = compared(samples)
    assert report.data.findings == [] and report.data.verdict == "Nothing grows in 10 samples."
    assert report.data.shown == []


def test_keys_survive_a_restart_and_addresses_do_not():
    samples = growing(10, arena=lambda at: [("glibc main", 1, 5), (f"glibc thread 0x7f{at}", 1, at * MIB)])
    others = [replace(one, process=ProcessId(at, "server")) for at, one in enumerate(samples)]
    report = compared(others)
    assert not report.data.one_process
    assert [one.details["key"] for one in report.data.findings] == ["struct session"]
    assert {row.key for row in report.data.changes if row.kind == "arena"} == {"glibc main"}


def test_after_a_restart_the_new_process_counts_where_it_was_sampled_often_enough():
    old, new = growing(9), growing(9)
    new = [replace(one, process=replace(PROCESS, pid=8, mark="other"), time=2000.0 + one.time) for one in new]
    recording = Recording([*old, *new])
    assert recording.last_run == 9
    assert recording.trend(recording.find("type", "struct session")).shape is Shape.GROWING
    assert Recording([*old, *new[:5]]).last_run == 0


def test_what_is_not_listed_is_not_known_and_what_is_not_there_is_0():
    listed = sample(0, type=[("a", 1, 10)], size=[("8", 1, 10)])
    cut = sample(1, type=[("b", 1, 20), (OTHER, 3, 9)], size=[("16", 1, 20)])
    recording = Recording([listed, cut])
    assert recording.find("type", "a").bytes == [10, None]
    assert recording.find("size", "8").bytes == [10, 0]
    assert recording.find("size", "16").bytes == [0, 20]
    assert recording.find("type", "b").counts == [0, 1]


def test_what_is_not_in_a_sample_that_was_not_examined_to_its_end_is_not_known():
    whole = sample(0, size=[("8", 1, 10)])
    recording = Recording([replace(whole, complete=False), sample(1, size=[("8", 1, 10), ("16", 1, 20)])])
    assert recording.find("size", "16").bytes == [None, 20] and recording.find("size", "8").bytes == [10, 10]
    assert Recording([whole, recording.samples[1]]).find("size", "16").bytes == [0, 20]


def test_kinds_are_compared_where_they_are_in_the_same_terms():
    one = sample(0, type=[("a", 1, 10)], owner=[("x", None, 5)], size=[("8", 1, 10)], total=[("memory", None, 1)])
    assert Recording([one, replace(one, named=False)]).kinds == [kinds.TOTAL, kinds.OWNER, kinds.SIZE]
    assert Recording([one, replace(one, measure="in core")]).kinds == [kinds.TOTAL, kinds.SIZE, kinds.TYPE]
    without = replace(one, rows={"size": one.rows["size"]})
    assert Recording([without, one]).kinds == [kinds.SIZE]


def test_times_that_do_not_rise_are_not_believed():
    samples = [replace(one, time=5.0) for one in growing(9)]
    report = compared(samples)
    (finding,) = report.data.findings
    assert finding.details["per_hour"] is None and "grew by 8 MiB in 9 samples" in finding.summary
    assert all(row.per_hour is None for row in report.data.changes)


def generations(came, kept):
    return Ages({"struct session": [Generation(at, came, came, kept, kept) for at in range(6)]}, True)


def test_blocks_of_which_none_is_freed_need_fewer_samples():
    few = growing(6)
    assert found_in(few)[0][1] is Severity.INFO
    assert found_in(few, Of(ages=generations(4096, 4096)))[0][1] is Severity.WARNING


def test_what_is_freed_again_is_a_tide():
    assert found_in(growing(10), Of(ages=generations(4096, 100)))[0][1] is Severity.INFO
    assert found_in(growing(10), Of(ages=generations(4096, 3000)))[0][1] is Severity.WARNING


def test_what_leaks_is_kept_by_nothing():
    samples = growing(9, leak=lambda at: [("struct session", 4096 * (at + 1), MIB * (at + 1))])
    (finding,) = compared(samples, Of(find_path=lambda kind, key, sure: "never asked")).data.findings
    assert "nothing points at them" in finding.summary and finding.details["leaked"]


def test_sizes_stand_for_types_that_are_not_known():
    samples = growing(9, type=lambda at: [("unknown", 9, MIB * (at + 1))], size=lambda at: [("248", 9, MIB * (at + 1))])
    (finding,) = compared(samples).data.findings
    assert finding.details["of"] == "size" and "blocks of 248 bytes grew" in finding.summary


def test_a_table_names_what_mappings_of_its_own_keep():
    samples = growing(9, table=lambda at: [("names", 4096 * (at + 1), None), ("other", 7, None)])
    path = "anonymous memory 0x7f00-0x7f80 +0x8, by 1 pointer"
    (finding,) = compared(samples, Of(find_path=lambda kind, key, sure: path)).data.findings
    assert finding.details["kept_by"] == "the table names"
    assert any("the table names grew by 32 768 entries" in line for line in finding.evidence)


def test_threads_that_grow_come_before_what_they_take():
    rows = {
        "total": lambda at: [("memory", None, 9 * MIB), ("threads", 3 + at, None), ("arenas", 1 + at, None)],
        "thread": lambda at: [("worker", 2 + at, None), ("main", 1, None)],
    }
    found = compared(growing(9, **rows)).data.findings
    assert [one.kind for one in found] == ["thread-growth", "growth"]
    assert "most of them worker" in found[0].summary and found[0].bytes is None


def test_arenas_without_threads_of_their_own():
    found = found_in(growing(9, total=lambda at: [("memory", None, 9), ("threads", 3, None), ("arenas", at, None)]))
    assert found[0] == ("arena-growth", Severity.WARNING, None)


def test_free_memory_that_grows_while_what_is_in_use_does_not():
    samples = [
        sample(at, heap=[("glibc in use", 9, 8 * MIB), ("glibc free", 9, MIB * at)], total=[("memory", None, MIB * at)])
        for at in range(9)
    ]
    (finding,) = compared(samples).data.findings
    assert finding.kind == "fragmentation-growth" and finding.details["allocator"] == "glibc"


def test_what_is_free_because_less_is_in_use_is_no_growth():
    samples = [sample(at, heap=[("glibc in use", 9, (20 - at) * MIB), ("glibc free", 9, MIB * at)]) for at in range(9)]
    assert found_in(samples) == []


def test_memory_of_no_heap_is_named_by_its_owner():
    samples = growing(9, owner=lambda at: [("/dev/shm/pool", None, MIB * at), ("glibc in use", None, MIB * at)])
    assert [one[2] for one in found_in(samples)] == ["struct session", "/dev/shm/pool"]


def test_how_long_limits_last():
    samples = [replace(one, limits=[Limit("cgroup", 100 * MIB, 60 * MIB)]) for one in growing(10)]
    report = compared(samples, Of(limit=30 * MIB))
    rows = {row.limit: row for row in report.data.limits}
    assert rows["cgroup"].seconds == pytest.approx(400, rel=0.05)
    assert rows["--memory-limit"].taken == 16 * MIB
    assert rows["--memory-limit"].seconds == pytest.approx(140, rel=0.05)
    assert any("cgroup of 100 MiB is reached in" in line for line in report.data.findings[0].evidence)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.25, "0.2 s"), (7.96, "8 s"), (18, "18 s"), (119, "119 s"), (120, "2 min"), (5400, "90 min"),
     (9000, "2.5 h"), (86400 * 3, "3 days"), (86400 * 4000, "4 000 days")],
)  # fmt: skip
def test_spans_of_time(seconds, text):
    assert span_text(seconds) == text


def test_changes_of_both_signs_are_listed_the_largest_of_each_kind_first():
    before = sample(0, type=[("a", 1, 10), ("b", 1, 900), ("c", 2, 7)])
    after = sample(1, type=[("a", 1, 500), ("b", 1, 100), ("c", 2, 7)])
    rows = compared([before, after]).data.shown
    assert [(row.key, row.change) for row in rows] == [("b", -800), ("a", 490)]
