"""``blocks leaks`` on C++: containers, smart pointers, second bases and arrays with a cookie, as the program states."""

from __future__ import annotations

import pytest

from tests.gdb.answers import ask
from tests.gdb.test_leaks import LEAKS, check
from tests.support.boards import Board
from tests.support.glibcs import Unavailable
from tests.support.leakscxx import set_up
from tests.support.truth import address


@pytest.mark.parametrize("twin", ("leaking", "healthy"))
@pytest.mark.parametrize("target, info", (("core", "debug"), ("attach", "plain"), ("gcore", "bare")))
def test_objects_and_containers(stages, target, info, twin):
    board = Board(target, info, "system")
    arguments = ["--healthy"] if twin == "healthy" else []
    try:
        here = stages.keep(("leaks.cc", board, twin), lambda: set_up(board, arguments, stages.place))
    except Unavailable as reason:
        pytest.skip(str(reason))
    answer, retained = ask(here, LEAKS, "blocks retained")
    check(here.truth, answer)
    if info == "debug" and twin == "leaking":  # the newest frame is libc's, and its language is C
        roots = [row["root"] for row in retained["data"]["roots"]]
        assert any(root.startswith("static table_held of ") for root in roots) and "_Z" not in "".join(roots)
    data = answer["data"]
    blocks = here.truth.details["blocks"]
    assert bool(data["leaked"]) == bool(data["possibly_leaked"]) == (twin == "leaking")
    for container in ("list", "map", "table", "vector", "shared cycle", "deque") if twin == "leaking" else ():
        assert kept_by(data, blocks, container) == [sum(is_of(one, container) for one in blocks)], container


def kept_by(data, blocks, container):
    """How many blocks each leak root of a container keeps: all are of one."""
    own = {address(one["address"]) for one in blocks if is_of(one, container)}
    return [row["kept_blocks"] for row in data["leak_roots"] if address(row["address"]) in own]


def is_of(block, container):
    """Names end in a number."""
    name = block["name"].rpartition(" ")[0]
    return name == container or (container == "shared cycle" and name == "below the shared cycle")
