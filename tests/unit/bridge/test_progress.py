"""The progress line and the time budget: nothing here needs gdb."""

from __future__ import annotations

import os
import pty
import select

import pytest

from gdbext.bridge import progress
from gdbext.bridge.progress import DESCRIPTOR, TerminalProgress, TimeUp


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
    with pytest.raises(TimeUp):
        told.at("arenas", 1, 2)
    told.at("arenas", 2, 2)
