"""The fixtures of tests that run gdb: ``board``, ``stage``, and the stages behind them.

A test that takes ``board`` runs on every board of this run (``--boards``). ``@pytest.mark.boards(...)``
restricts it or adds dimensions, which become arguments of the test::

    @pytest.mark.boards(target=("core", "gcore"), program=("two_waves", "fastbins"))
    def test_totals(stage, board, program):
        heap = stage(program, "--healthy").gdbext("blocks summary")

``once`` names dimensions, or single values, that the usual run needs, but not in every pair. ``--boards=full`` takes
every combination of a board's own dimensions, and every pair with those that a test adds::

    @pytest.mark.boards(program=PROGRAMS, once=("program", "gdbserver"))

``jeboard``, ``jestage`` and ``@pytest.mark.jeboards(...)`` are the same for programs that use jemalloc.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, Mapping, Sequence

import pytest

from tests.support import preloaded
from tests.support.boards import DIMENSIONS, Board, Stage, Stages
from tests.support.glibcs import Unavailable
from tests.support.jestages import JE_DIMENSIONS, JeBoard, JeStage
from tests.support.jestages import get as get_jemalloc
from tests.support.pairwise import Row, pairwise, thorough


def pytest_generate_tests(metafunc: Any) -> None:
    for fixture, kind, own in (("board", Board, DIMENSIONS), ("jeboard", JeBoard, JE_DIMENSIONS)):
        if fixture in metafunc.fixturenames:
            _over_boards(metafunc, fixture, kind, own)


def _over_boards(metafunc: Any, fixture: str, kind: type, own: Mapping[str, Sequence[str]]) -> None:
    marker = metafunc.definition.get_closest_marker(f"{fixture}s")
    dimensions = {**own, **(marker.kwargs if marker else {})}
    once = dimensions.pop("once", ())
    extra = [name for name in dimensions if name not in own]
    every = metafunc.config.getoption("--boards") == "full"
    rows = thorough(dimensions, list(own)) if every else pairwise(dimensions, once)
    cases = [_case(row, extra, kind(*(row[name] for name in own))) for row in rows]
    metafunc.parametrize([fixture, *extra], cases)


def _case(row: Row, extra: list[str], board: Any) -> Any:
    values = [row[name] for name in extra]
    return pytest.param(board, *values, id="-".join([str(board), *values]))


@pytest.fixture(autouse=True)
def gdbs_of_its_own(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``--boards=full`` a test marked ``fresh`` asks no copies of a gdb that was started before."""
    if request.config.getoption("--boards") == "full" and request.node.get_closest_marker("fresh"):
        monkeypatch.setattr(preloaded, "enabled", False)


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    """The stages of this run; a test that needs a board of its own choice asks ``stages.get``."""
    kept = Stages(tmp_path_factory.mktemp("stages"))
    yield kept
    kept.close()


@pytest.fixture
def stage(stages: Stages, board: Board) -> Iterator[Callable[..., Stage]]:
    """Return a function: ``stage(program, *arguments, variant="", …)`` is that program on the test's board.

    It skips the test, with the reason, where the board can't be had.
    """

    def on_board(program: str, *arguments: str, **how: Any) -> Stage:
        try:
            return stages.get(board, program, arguments, **how)
        except Unavailable as reason:
            pytest.skip(str(reason))

    yield on_board
    stages.close_restless()


@pytest.fixture
def jestages(stages: Stages) -> Callable[..., JeStage]:
    """Return a function: ``jestages(JeBoard(…), program, *arguments, conf="", also=(), damage=())``.

    It skips the test, with the reason, where the board can't be had.
    """

    def on_board(board: JeBoard, program: str, *arguments: str, **how: Any) -> JeStage:
        try:
            return get_jemalloc(stages, board, program, arguments, **how)
        except Unavailable as reason:
            pytest.skip(str(reason))

    return on_board


@pytest.fixture
def jestage(jestages: Callable[..., JeStage], jeboard: JeBoard) -> Callable[..., JeStage]:
    """Return a function: ``jestage(program, *arguments, …)`` is that program on the test's board of jemalloc."""
    return lambda program, *arguments, **how: jestages(jeboard, program, *arguments, **how)
