"""The fixtures of tests that run gdb: ``board``, ``stage``, and the stages behind them.

A test that takes ``board`` runs on every board of this run (``--boards``). ``@pytest.mark.boards(...)``
restricts it or adds dimensions, which become arguments of the test::

    @pytest.mark.boards(target=("core", "gcore"), program=("two_waves", "fastbins"))
    def test_totals(stage, board, program):
        heap = stage(program, "--healthy").gdbext("blocks summary")
"""

from __future__ import annotations

from typing import Any, Callable, Iterator

import pytest

from tests.support.boards import DIMENSIONS, Board, Stage, Stages
from tests.support.glibcs import Unavailable
from tests.support.pairwise import Row, full, pairwise


def pytest_generate_tests(metafunc: Any) -> None:
    if "board" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("boards")
    dimensions = {**DIMENSIONS, **(marker.kwargs if marker else {})}
    extra = [name for name in dimensions if name not in DIMENSIONS]
    choose = full if metafunc.config.getoption("--boards") == "full" else pairwise
    cases = [_case(row, extra) for row in choose(dimensions)]
    metafunc.parametrize(["board", *extra], cases)


def _case(row: Row, extra: list[str]) -> Any:
    board = Board(*(row[name] for name in DIMENSIONS))
    values = [row[name] for name in extra]
    return pytest.param(board, *values, id="-".join([str(board), *values]))


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    """The stages of this run; a test that needs a board of its own choice asks ``stages.get``."""
    kept = Stages(tmp_path_factory.mktemp("stages"))
    yield kept
    kept.close()


@pytest.fixture
def stage(stages: Stages, board: Board) -> Callable[..., Stage]:
    """Return a function: ``stage(program, *arguments, variant="", …)`` is that program on the test's board.

    It skips the test, with the reason, where the board can't be had.
    """

    def on_board(program: str, *arguments: str, **how: Any) -> Stage:
        try:
            return stages.get(board, program, arguments, **how)
        except Unavailable as reason:
            pytest.skip(str(reason))

    return on_board
