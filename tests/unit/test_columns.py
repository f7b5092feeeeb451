"""Rows that come as columns: the same rows, the same JSON, as if they came one by one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbext import render
from gdbext.columns import Column, batches_of, constant, first_rows
from gdbext.report import Kind, Report, Rows, ThreadRef, column, rendered, table


@dataclass(frozen=True)
class Row:
    address: int = column("address", Kind.ADDRESS)
    size: Optional[int] = column("100 %", Kind.BYTES)
    state: Optional[str] = column("state")
    shown: str = column("shown", json=False)
    threads: Any = column("threads", Kind.THREADS)
    share: Any = column("share", Kind.SHARE)
    flag: Any = column("flag", Kind.FLAG)


@dataclass(frozen=True)
class Data:
    rows: Rows = table("Rows")


STATES = ("in use", 'a "word" of 100 %', None)
THREADS = [(ThreadRef(1, 7, "worker"),), (), None]
NUMBERS = st.integers(0, 2**64 - 1)
CELLS = st.tuples(NUMBERS, st.none() | NUMBERS, st.integers(0, 2), st.integers(0, 2), st.none() | st.floats())


def batch_of(cells, names=()):
    address, size, state, threads, share = zip(*cells)
    known = np.array([each is not None for each in size])
    return {
        "address": Column(np.array(address, np.uint64)),
        "size": Column(np.array([each or 0 for each in size], np.uint64), known),
        "state": Column(np.array(state, np.uint8), words=STATES),
        "shown": constant("word", len(cells)),
        "threads": Column(list(threads), words=THREADS),
        "share": Column(list(share)),
        "flag": Column(np.array([number % 2 == 0 for number in state])),
    }


def columns(batches):
    return Rows.of_columns(lambda names: (batch_of(cells, names) for cells in batches), Row, sum(map(len, batches)))


def one_by_one(batches):
    def make():
        for address, size, state, threads, share in (cells for batch in batches for cells in batch):
            yield Row(address, size, STATES[state], "word", THREADS[threads], share, state % 2 == 0)

    return Rows(make, Row, sum(map(len, batches)))


def document(rows, limit=None):
    return "".join(render.json_pieces(Report(Data(rows)), schema="x/2", target=None, limit=limit))


@given(st.lists(st.lists(CELLS, min_size=1, max_size=4), max_size=3), st.none() | st.integers(0, 9))
def test_columns_and_rows_give_the_same(batches, limit):
    assert document(columns(batches), limit) == document(one_by_one(batches), limit)
    assert list(map(repr, columns(batches))) == list(map(repr, one_by_one(batches)))


def numbers(count, at_once=3, interrupt=None):
    made = []

    def make(names):
        for start in range(0, count, at_once):
            if start == interrupt:
                raise KeyboardInterrupt
            made.append(start)
            yield {"number": Column(np.arange(start, min(start + at_once, count)))}

    rows = Rows.of_columns(make, Number, count)
    return rows, made


@dataclass(frozen=True)
class Number:
    number: int = column("number", Kind.COUNT)


def numbers_in(text):
    return [row["number"] for row in json.loads(text)["data"]["rows"]]


@pytest.mark.parametrize("limit", [1, 3, 4, 9, 10, 11])
def test_no_more_is_made_than_the_limit_asks(limit):
    rows, made = numbers(10)
    assert numbers_in(document(rows, limit)) == list(range(min(limit, 10)))
    assert len(made) == min(-(-limit // 3), 4)


@pytest.mark.parametrize("most", [1, 3, 5, 10, 11])
def test_kept_columns_are_made_once(most):
    rows, made = numbers(10)
    assert rows.keep(most) == (most < 10)
    assert len(made) == min(-(-most // 3), 4)
    assert numbers_in(document(rows)) == list(range(10)) and len(made) == 4


def test_an_interrupt_leaves_whole_rows():
    rows, _ = numbers(10, interrupt=6)
    assert numbers_in(document(rows)) == list(range(6))
    assert rows.interrupted and not rendered(Report(Data(rows))).complete


def test_an_interrupt_while_rows_are_kept_is_remembered():
    rows, _ = numbers(10, interrupt=6)
    assert not rows.keep(9)
    assert numbers_in(document(rows)) == list(range(6)) and rows.interrupted


def test_what_may_end_rows_is_asked_between_batches():
    rows, made = numbers(10)

    def check():
        if len(made) == 3:
            raise KeyboardInterrupt

    rows.check = check
    assert numbers_in(document(rows)) == list(range(6))


def test_rows_one_by_one_can_be_had_as_columns():
    rows = Rows(lambda: map(Number, range(10)), Number, 10)
    assert [batch["number"].cells() for batch in rows.batches()] == [list(range(10))]
    assert [*batches_of([], ["number"])] == [] and not rows.in_columns


def test_batches_without_rows_are_left_out():
    empty, some = {"a": Column([])}, {"a": Column([1, 2])}
    assert [batch["a"].cells() for batch in first_rows([empty, some, empty, some], 3)] == [[1, 2], [1]]
