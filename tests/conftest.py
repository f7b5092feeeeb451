"""Options, markers and the last lines that all tests share."""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Iterator

import pytest

with suppress(ImportError):
    from hypothesis import settings

    settings.register_profile("gdbext", deadline=None)  # a busy machine is no defect
    settings.load_profile("gdbext")

CHECKOUT = Path(__file__).resolve().parents[1]
if str(CHECKOUT) not in sys.path:
    sys.path.insert(0, str(CHECKOUT))

from gdbext.render import style  # noqa: E402
from tests.support import examples, timings  # noqa: E402

# With PYTHONWARNINGS=error: gdb's own modules and the distribution's printers of libstdc++ warn.
if "PYTHONWARNINGS" in os.environ:
    os.environ["PYTHONWARNINGS"] += ",ignore::ImportWarning,ignore:invalid escape sequence:DeprecationWarning"

style.only_ascii = lambda: False  # pages that are compared here have all characters, whatever the locale


def pytest_addoption(parser: Any) -> None:
    parser.addoption(
        "--boards",
        choices=("pairwise", "full"),
        default="pairwise",
        help="boards that each gdb test runs on: every pair of their values (default), or every combination",
    )


def pytest_configure(config: Any) -> None:
    examples.every = config.getoption("--boards") == "full"
    config.addinivalue_line("markers", "slow: takes more than some ten seconds")
    config.addinivalue_line(
        "markers", "boards(**dimensions): restricts the values of a test's boards, or adds a dimension"
    )
    config.addinivalue_line("markers", "jeboards(**dimensions): the same for boards of jemalloc")
    config.addinivalue_line("markers", "fresh: with --boards=full each question starts a gdb of its own")
    config.addinivalue_line(
        "markers", "full: runs with --boards=full only: it needs a build of its own, or is one more of many alike"
    )


def pytest_collection_modifyitems(config: Any, items: "list[Any]") -> None:
    if config.getoption("--boards") == "full":
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    """Have each process take its half of the tests in order, and then a half of what the other has left.

    Neighbours share fixtures and stages. An xdist before 3.2 deals tests out in turn.
    """
    with suppress(ImportError):
        from xdist.scheduler.worksteal import WorkStealingScheduling

        return WorkStealingScheduling(config, log) if config.getvalue("dist") == "load" else None
    return None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in timings.describe(terminalreporter.stats):
        terminalreporter.write_line(line)
    reasons = Counter(_reasons(terminalreporter.stats.get("skipped", ())))
    if not reasons:
        return
    listed = "; ".join(f"{count} x {reason}" for reason, count in sorted(reasons.items()))
    terminalreporter.write_line(f"{sum(reasons.values())} skipped: {listed}")


def _reasons(reports: Any) -> Iterator[str]:
    for report in reports:
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        yield text.replace("Skipped: ", "", 1)
