"""What `watch` shows: sparklines, tables that fit, and lines."""

from __future__ import annotations

import re
import time

import pytest

from gdbext.analysis.growth.sample import ARENA, HEAP, OTHER, OWNER, SIZE, TOTAL, ProcessId, Row, Sample
from gdbext.recording.history import History
from gdbext.recording.view import sample_line, screen, sparkline

MIB = 1 << 20
SERVER = ProcessId(7, "server", started=1, boot="b")


def sample(at, used, sizes=(), process=SERVER, complete=True, owners=()):
    rows = {
        TOTAL: [Row("memory", None, used + MIB), Row("mapped", None, 9 * MIB), Row("threads", 2 + at, None),
                Row("arenas", 1, None)],
        OWNER: [Row("glibc in use", None, used), *(Row(name, None, size) for name, size in owners)],
        HEAP: [Row("glibc in use", used // 64, used), Row("glibc free", 1, 64)],
        SIZE: [Row(str(size), count, size * count) for size, count in sizes],
        ARENA: [Row("glibc main", used // 64, used)],
    }  # fmt: skip
    return Sample(process, time=float(at), held_seconds=0.02, measure="resident", rows=rows, complete=complete)


def history_of(*samples):
    history = History()
    for one in samples:
        history.add(one)
    return history


def grown(most=10):
    return history_of(*(sample(at, (1 + at) * MIB, [(64, 16384 * (1 + at)), (32, 5)]) for at in range(most)))


@pytest.mark.parametrize(
    "values, width, expected",
    [
        ([], 8, ""),
        ([None, None], 8, ""),
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
        ([0, 1, 2, 3, 4, 5, 6, 7], 3, "▁▅█"),
        ([7, None, 0], 8, "█ ▁"),
        ([5, 5, 5], 8, "▁▁▁"),
        ([1_000_000, 1_000_001], 8, "▁▁"),
        ([1 << 62, 0], 8, "█▁"),
    ],
)
def test_a_sparkline_rises_with_its_values(values, width, expected):
    assert sparkline(values, width) == expected


def test_a_sparkline_is_ascii_where_nothing_else_is_there():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8, plain=True) == "_.-:=+*#"


def text_of(history, width=100, height=40, notes=(), **how):
    return screen(history, notes, width, height, plain=False, **how)


def row_of(lines, name):
    return next(line for line in lines if line.startswith(name))


def test_figures_have_their_last_change_and_what_they_gained_since_the_first():
    lines = text_of(grown())
    assert row_of(lines, "resident").split()[1:7] == ["11", "MiB", "+1", "MiB", "+9", "MiB"]
    assert row_of(lines, "threads").split()[1:4] == ["11", "+1", "+9"]
    assert row_of(lines, "blocks of 64 bytes").split()[4:10] == ["10", "MiB", "+1", "MiB", "+9", "MiB"]
    assert row_of(lines, "resident").endswith("▁▂▃▃▄▅▆▆▇█")
    assert not any(line.startswith("blocks of 32") for line in lines), "it has not grown"


def test_the_title_says_what_it_is_of_and_what_it_costs():
    title = text_of(grown())[0]
    assert title.startswith("server · pid 7 · ")
    assert time.strftime("%H:%M:%S", time.localtime(9.0)) in title
    assert "10 samples in 9 s · stands still 2.2 % of the time" in title
    assert text_of(history_of(sample(0, MIB, complete=False)))[0].endswith("not complete")


@pytest.mark.parametrize("width", [1, 20, 40, 60, 80, 100, 200])
@pytest.mark.parametrize("height", [1, 2, 5, 10, 24, 50])
def test_it_fits_the_terminal(width, height):
    owners = [(f"/usr/lib/x86_64-linux-gnu/a-library-with-a-long-name-{number}.so", number) for number in range(30)]
    history = history_of(*(sample(at, MIB << at, [(1 << at, 5)], owners=owners) for at in range(300 % 40)))
    lines = text_of(history, width, height, ["process 7 is recorded", "x" * 300])
    assert len(lines) <= height
    if width >= 20:
        assert max(map(len, lines)) <= width


def test_a_wide_terminal_has_longer_curves():
    lengths = {width: len(row_of(text_of(grown(200), width), "resident")) for width in (80, 100, 140)}
    assert lengths[80] < lengths[100] < lengths[140] <= 140


def test_nothing_of_a_name_reaches_the_terminal_as_it_is():
    history = history_of(sample(0, MIB, process=ProcessId(7, "a\x1b[31m"), owners=[("b\x1b]0;c\x07", 1)]))
    lines = text_of(history, notes=["d\x1b[2J"])
    assert "\x1b" not in "".join(lines) and "\x1b" not in sample_line(history)


def test_colour_is_of_escapes_alone():
    plain, colored = text_of(grown()), text_of(grown(), color=True)
    assert "\x1b[" in "".join(colored)
    assert [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in colored] == plain


def test_only_ascii_where_the_locale_has_no_more():
    assert all(line.isascii() for line in screen(grown(), ["n"], 100, 40, plain=True))


def test_what_is_new_has_grown_from_nothing_where_all_of_its_kind_were_listed():
    lines = text_of(history_of(sample(0, MIB, [(64, 1)]), sample(1, MIB, [(64, 1), (128, 8)])))
    assert row_of(lines, "blocks of 128 bytes").split()[4:] == ["1", "KiB", "+1", "KiB", "▁"]


def test_what_is_new_among_others_may_have_been_there():
    rest = [Row(OTHER, 5, 500)]
    first, second = sample(0, MIB, [(64, 1)]), sample(1, MIB, [(64, 1), (128, 8)])
    first.rows[SIZE].extend(rest)
    second.rows[SIZE].extend(rest)
    lines = text_of(history_of(first, second))
    assert not any(line.startswith("blocks of 128") for line in lines)


def test_another_process_begins_anew():
    history = history_of(sample(0, 9 * MIB), sample(50, MIB, process=ProcessId(8, "server", started=9, boot="b")))
    lines = text_of(history)
    assert "pid 8" in lines[0] and "1 sample in 0 s" in lines[0]
    assert row_of(lines, "resident").split()[1:3] == ["2", "MiB"]


def test_before_the_first_sample_it_waits():
    assert text_of(History(), notes=["process 7 is recorded"])[-1] == "waiting for the first sample"


def test_a_sample_is_one_line_of_text():
    line = sample_line(grown())
    assert line.startswith(time.strftime("%H:%M:%S", time.localtime(9.0)) + "  pid 7  resident 11 MiB (+1 MiB)")
    assert "threads 11 (+1)" in line and "glibc in use 10 MiB (+1 MiB)" in line
    assert line.endswith("stood still 20 ms")


def test_memory_is_bounded_however_long_it_runs():
    history = history_of(*(sample(at, MIB, [(at, 1)]) for at in range(1000)))
    courses = history.courses(*(kind for kind in (TOTAL, OWNER, SIZE)))
    assert max(len(course.values) for course in courses) == 240
    assert len(history._courses) < 300
