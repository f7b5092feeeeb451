"""Samples are taken in a process of their own: when they are, and what its end means."""

from __future__ import annotations

import os
import sys
import time

import pytest

from gdbext.cli.ending import noting
from gdbext.cli.sampling import Sampling
from gdbext.errors import DebuggerError
from gdbext.recording.taken import Taken, read_taken, taken_text


def test_time_does_not_jump_when_the_machine_s_is_set(monkeypatch):
    sampling = Sampling("sizes", None, 10.0)
    before = time.time()
    assert abs(sampling.now() - before) < 1
    monkeypatch.setattr(time, "time", lambda: before - 86400.0)
    assert 0 <= sampling.now() - before < 5


def test_a_fault_comes_back_as_it_was():
    taken = read_taken(taken_text(Taken(0.5, fault=DebuggerError("may not", "be root"))).encode())
    fault = taken.fault
    assert (taken.held, taken.sample, fault.kind, str(fault)) == (0.5, None, "debugger", "may not; be root")


def test_a_line_that_is_cut_is_no_answer():
    text = taken_text(Taken(0.5, fault=DebuggerError("may not"))).encode()
    for length in range(len(text)):
        with pytest.raises(ValueError):
            read_taken(text[:length])


def test_a_sample_that_takes_too_long_is_given_up():
    with noting() as noted:
        taken = Sampling("sizes", None, 0.01).take(os.getpid(), noted)
    assert taken.sample is None and str(taken.fault) == "no sample within 0.01 s; --timeout gives more"


def test_a_python_that_cannot_be_started_is_said(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with noting() as noted:
        taken = Sampling("sizes", None, 10.0).take(os.getpid(), noted)
    assert str(taken.fault) == "cannot run /nowhere/python: No such file or directory"
