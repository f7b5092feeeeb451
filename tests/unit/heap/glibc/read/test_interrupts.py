"""``triage`` of a heap that leaks, interrupted at any moment: it finds the leak, or says that it does not know."""

import os

import pytest

import gdbext
from gdbext._mount import mount
from gdbext.analysis.triage import triage
from gdbext.debuginfo import NoDebugInfo
from gdbext.progress import checked
from gdbext.session import Session
from tests.support.ptmalloc import HeapBuilder

mount(os.path.dirname(gdbext.__file__))

SMALL = {"min-finding-bytes": 1, "min-finding-floor": 1}


class Stopping:
    """Progress that is interrupted once, at its n-th moment; 0 is never."""

    def __init__(self, moment):
        self.moment, self.met = moment, 0

    def at(self, doing, done, total):
        self.met += 1
        if self.met == self.moment:
            raise KeyboardInterrupt

    def check(self):
        self.at("", 0, None)


@pytest.fixture(scope="module")
def target():
    builder = HeapBuilder()
    for _ in range(20):
        builder.main.chunk(0x1000)
    arena = builder.add_arena()
    builder.add_thread(arena)
    arena.chunk(0x2000)
    return builder.target()


def look(target, moment):
    progress = Stopping(moment)
    with checked(progress.check):
        session = Session(lambda: target, NoDebugInfo(), SMALL)
        session.progress = progress
        return triage(session), progress


def test_undisturbed_it_finds_the_leak(target):
    report, progress = look(target, 0)
    assert [finding.kind for finding in report.data.findings] == ["leak"] and report.complete
    assert progress.met > 20


@pytest.mark.parametrize("moment", range(1, 51))
def test_an_interrupt_never_looks_healthy(target, moment):
    try:
        report, _ = look(target, moment)
    except KeyboardInterrupt:
        return  # no answer at all
    if not report.data.findings:
        assert not report.complete and report.problems
        assert "not examined: " in report.data.verdict and not report.data.verdict.startswith("No findings.")
