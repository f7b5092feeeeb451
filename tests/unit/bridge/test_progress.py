"""The progress line and the time budget: nothing here needs gdb."""

from __future__ import annotations

import os
import pty

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


def test_long_work_is_told_on_the_terminal_handed_down(terminal):
    told = TerminalProgress()
    told.at("MiB walked", 50, 200)
    assert os.read(terminal, 1000) == b"\rgdbext: MiB walked: 25 % of 200"


def test_the_line_is_wiped_before_the_answer(terminal):
    told = TerminalProgress()
    told.at("arenas", 1, None)
    told.clear()
    text = os.read(terminal, 1000).decode()
    assert text.startswith("\rgdbext: arenas: 1") and text.endswith("\r" + " " * len("gdbext: arenas: 1") + "\r")


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
