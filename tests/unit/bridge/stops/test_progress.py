"""The progress line and the time budget: nothing here needs gdb."""

from __future__ import annotations

import os
import pty
import select

import numpy as np
import pytest

from gdbext.bridge.stops import progress
from gdbext.bridge.stops.progress import DESCRIPTOR, TerminalProgress, TimeUp
from gdbext.kernels import NATIVE, pointers
from gdbext.progress import check, checked


@pytest.fixture
def terminal(monkeypatch):
    """A terminal whose descriptor the shell program has handed down; return what reads it."""
    reading, writing = pty.openpty()
    monkeypatch.setenv(DESCRIPTOR, str(writing))
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    yield reading
    os.close(reading)
    os.close(writing)


def shown(terminal, length):
    """Return so many characters from a terminal, which may hand them over in parts; fewer after ten seconds."""
    text = b""
    while len(text) < length and select.select([terminal], [], [], 10)[0]:
        text += os.read(terminal, length - len(text))
    return text.decode()


def test_long_work_is_told_on_the_terminal_handed_down(terminal):
    told = TerminalProgress()
    told.at("MiB walked", 50, 200)
    line = "\rgdbext: MiB walked: 25 % of 200"
    assert shown(terminal, len(line)) == line


def test_the_line_is_wiped_before_the_answer(terminal):
    told = TerminalProgress()
    told.at("arenas", 1, None)
    told.clear()
    line = "gdbext: arenas: 1"
    wiped = f"\r{line}\r{' ' * len(line)}\r"
    assert shown(terminal, len(wiped)) == wiped


def test_short_work_is_silent(terminal, monkeypatch):
    monkeypatch.setattr(progress, "QUIET_SECONDS", 60.0)
    told = TerminalProgress()
    told.at("arenas", 1, 2)
    told.clear()
    os.set_blocking(terminal, False)
    with pytest.raises(BlockingIOError):
        os.read(terminal, 1000)


@pytest.mark.parametrize("given", ["", "none", "999"])
def test_without_a_terminal_nothing_is_written(given, monkeypatch, capfd):
    monkeypatch.setenv(DESCRIPTOR, given)
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    TerminalProgress().at("arenas", 1, 2)
    assert capfd.readouterr() == ("", "")


def test_a_spent_budget_stops_once(monkeypatch):
    monkeypatch.setenv(DESCRIPTOR, "")
    times = iter([0.0, 2.0, 3.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(times))
    told = TerminalProgress(budget=1)
    assert told.spent == 0
    with pytest.raises(TimeUp):
        told.at("arenas", 1, 2)
    told.at("arenas", 2, 2)
    assert told.spent == 1


def test_kernels_ask_for_time_between_their_steps(monkeypatch):
    monkeypatch.setenv(DESCRIPTOR, "")
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    told = TerminalProgress(budget=1)
    with checked(told.check):
        check()
        now[0] = 2.0
        with pytest.raises(TimeUp):
            check()
        check()
    now[0] = 9.0
    with checked(TerminalProgress(budget=1).check):
        check()


@pytest.mark.parametrize("kernels", [pointers, NATIVE], ids=["reference", "native"])
def test_a_kernel_ends_when_there_is_no_time(kernels):
    if kernels is None:
        pytest.skip("the native kernels are not built")
    asked = []

    def stop():
        asked.append(1)
        raise KeyboardInterrupt

    count = 1 << 22  # more than a step of the native kernel takes
    index = pointers.BlockIndex(np.arange(count, dtype=np.uint64) * 8 + 0x10000, np.full(count, 8, np.uint64))
    chain = np.random.default_rng(1).permutation(count).astype(np.uint64) * 8 + 0x10000
    roots = np.full(count, pointers.NOT_REACHED, np.uint8)
    roots[:8] = pointers.REACHED
    arguments = ([(0x10000, chain)], index, pointers.PointerRules(8), np.ones(count, np.bool_), roots)
    with checked(stop), pytest.raises(KeyboardInterrupt):
        kernels.mark_blocks(*arguments)
    assert asked == [1]


def test_a_terminal_that_is_gone_costs_no_answer(monkeypatch):
    reading, writing = pty.openpty()
    os.close(reading)
    monkeypatch.setenv(DESCRIPTOR, str(writing))
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    told = TerminalProgress(visible=True)
    for done in range(3):
        told.at("arenas", done, 2)
        told.clear()
    os.close(writing)
