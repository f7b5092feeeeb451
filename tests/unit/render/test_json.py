"""The JSON envelope: shape, kinds, streams."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gdbext import __version__, render
from gdbext.abi import X86_64
from gdbext.errors import NoHeapError
from gdbext.memory.fake import FakeMemory
from gdbext.process import Identity
from gdbext.report import Kind, Report, Rows, Severity, column, line, table
from gdbext.target import Target

from . import samples


def json_of(report, limit=None, target=None):
    return json.loads("".join(render.json_pieces(report, schema="gdbext/x/2", target=target, limit=limit)))


def target():
    return Target(FakeMemory([]), X86_64, Identity("/bin/x", "0123", 7, "/tmp/core", 1.5))


def test_envelope():
    document = json_of(samples.arenas(), target=target())
    assert document["schema"] == "gdbext/x/2"
    assert document["tool"] == {"version": __version__}
    assert document["target"] == {
        "exe": "/bin/x", "build_id": "0123", "pid": 7, "core": "/tmp/core", "time": 1.5,
    }  # fmt: skip
    assert document["complete"] is False
    assert document["findings"] is False
    assert document["problems"] == [
        {
            "kind": "absent-memory",
            "address": "0x7f0004000000",
            "message": "132 KiB of the heap are not in the core",
            "corruption": False,
        }
    ]
    assert document["evidence"][0]["subject"] == "libc"
    assert list(document)[-4:] == ["held_seconds", "complete", "findings", "status"]


def test_unknown_target_has_null_members():
    assert set(json_of(samples.triage())["target"].values()) == {None}


def test_rows_by_kind():
    data = json_of(samples.arenas())["data"]
    assert data["arenas"][1] == {
        "address": "0x7f0004000020",
        "kind": "thread",
        "system_mem": None,
        "share": None,
        "threads": None,
        "in_flux": None,
        "walked_bytes": 7,
    }
    assert data["arenas"][0]["threads"] == [{"number": 1, "lwp": 1001, "name": "worker-1"}]
    assert data["mmapped"] == {"blocks": 3, "bytes": 123456789}
    assert data["hidden"] == 3


def test_triage_nests_the_ledger():
    document = json_of(samples.triage(), limit=1)
    assert [finding["kind"] for finding in document["data"]["findings"]] == ["fragmentation", "convoy"]
    assert document["data"]["findings"][0]["severity"] == "warning"
    assert document["data"]["ledger"]["total"] == 108 << 20
    assert len(document["data"]["ledger"]["entries"]) == 1
    assert document["findings"] is True


def test_limit():
    assert len(json_of(samples.chunks(300))["data"]["chunks"]) == 300
    assert len(json_of(samples.chunks(300), limit=0)["data"]["chunks"]) == 300
    assert len(json_of(samples.chunks(300), limit=7)["data"]["chunks"]) == 7


@dataclass(frozen=True)
class Odd:
    address: Any = line("a", Kind.ADDRESS)
    size: Any = line("s", Kind.BYTES)
    share: Any = line("p", Kind.SHARE)
    flag: Any = line("f", Kind.FLAG)
    anything: Any = line("o", Kind.OBJECT)


def test_numpy_enums_and_nan():
    odd = Odd(
        np.uint64(2**64 - 1),
        np.uint32(5),
        float("nan"),
        np.bool_(True),
        {"sizes": np.array([1, 2]), Severity.INFO: np.float64("inf"), "set": (np.int8(-1), None, b"\xff")},
    )
    assert json_of(Report(odd))["data"] == {
        "address": "0xffffffffffffffff",
        "size": 5,
        "share": None,
        "flag": True,
        "anything": {"sizes": [1, 2], "info": None, "set": [-1, None, "b'\\xff'"]},
    }


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(PLAIN)
def test_plain_objects_come_back(value):
    data = json_of(Report(Odd(None, None, None, None, value)))["data"]
    assert data["anything"] == value


@dataclass(frozen=True)
class Named:
    name: Any = column("name")


@given(st.lists(st.text(), max_size=5))
def test_any_text_parses(names):
    rows = Rows(lambda: (Named(name) for name in names), Named, None)
    data = json_of(Report(samples.Chunks(rows, 1)))["data"]
    assert [row["name"] for row in data["chunks"]] == names


def test_interrupt_while_rows_are_made_closes_the_document():
    def make():
        yield from samples.chunk_rows(2)
        raise KeyboardInterrupt

    document = json_of(Report(samples.Chunks(Rows(make, samples.Chunk, 9), 9)))
    assert len(document["data"]["chunks"]) == 2
    assert document["complete"] is False
    assert document["problems"][0]["kind"] == "interrupted"


def test_rows_are_streamed():
    tracemalloc.start()
    pieces = render.json_pieces(samples.chunks(50_000), schema="x", target=None, limit=0)
    assert sum(map(len, pieces)) > 2_000_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500_000


def test_error():
    document = json.loads(render.error_json("gdbext/x/2", target(), NoHeapError("no heap", "look elsewhere")))
    assert document["data"] is None
    assert document["error"] == {"kind": "no-heap", "message": "no heap", "hint": "look elsewhere"}
    assert document["complete"] is False
    assert document["target"]["pid"] == 7
    assert list(document)[-4:] == ["held_seconds", "complete", "findings", "status"]


@dataclass(frozen=True)
class Name:
    """A row, whose text takes a path of its own."""

    name: str = column("name", Kind.TEXT)


@dataclass(frozen=True)
class Names:
    title: str = line("title", Kind.TEXT)
    names: Rows[Name] = table("names")


@given(st.text(st.characters(codec=None, categories=None), max_size=8))
def test_any_text_is_ascii_without_controls_and_valid_for_every_reader(text):
    """DEL is none of JSON's escapes, and halves of surrogates (bytes of a file's name) are no characters."""
    rows = [Name(text), Name("\U0001f600\x7f" + text)]
    report = Report(Names(text, Rows(lambda: iter(rows), Name, 2)))
    written = "".join(render.json_pieces(report, schema="gdbext/x/2", target=None, limit=None))
    assert all(" " <= char < "\x7f" or char == "\n" for char in written)
    data = json.loads(written)["data"]
    for one in (data["title"], data["names"][0]["name"]):
        one.encode("utf-8")
        assert one == text or any("\ud800" <= char <= "\udfff" for char in text)


def test_bytes_of_a_name_are_escaped():
    report = Report(Names("bad\udcff\udcc3\udcb6.core", Rows(lambda: iter(()), Name, 0)))
    assert json_of(report)["data"]["title"] == "bad\\xffö.core"
