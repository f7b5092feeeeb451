"""The kernels of ``native/`` over graphs of blocks, through ctypes: the same functions as the reference's."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import Any, Iterator, Optional, Sequence, Tuple

import numpy as np

from gdbext.kernels import native
from gdbext.kernels.chains import Span
from gdbext.kernels.graph import Edges, TooManyEdges, Tree
from gdbext.kernels.native import Native, NativeError
from gdbext.kernels.pointers import U8, U32, U64, BlockIndex, Mask, PointerRules
from gdbext.progress import check, relieve, threads

_i64, _u64, _u32, _pointer = ctypes.c_int64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p
_NO_ROOM = -2
_ALL = (1 << 64) - 1


class _Edges(ctypes.Structure):
    _fields_ = [(name, _pointer) for name in ("first", "to", "interior")] + [("rows", _u64), ("edges", _u64)]


_SIGNATURES = {
    "gx_edges_new": (_pointer, [_pointer, _pointer, _pointer, _pointer, _u64]),
    "gx_components_new": (_pointer, [_pointer, _pointer, _u32]),
    "gx_breadth_new": (_pointer, [_pointer, _pointer, _pointer]),
    "gx_dominators_new": (_pointer, [_pointer, _pointer, _pointer, _u64, _u64]),
    "gx_retained_new": (_pointer, [_pointer, _pointer, _u64, _u64, _pointer, _pointer]),
    "gx_graph_run": (_i64, [_pointer, _u32]),
    "gx_edges_found": (_i64, [_pointer]),
    "gx_edges_write": (_i64, [_pointer, _u64, _u64, _pointer, _pointer, _pointer]),
    "gx_components_write": (_i64, [_pointer, _u64, _pointer]),
    "gx_breadth_write": (_i64, [_pointer, _u64, _pointer, _pointer]),
    "gx_dominators_write": (_i64, [_pointer, _u64, _pointer]),
    "gx_retained_sound": (_i64, [_pointer]),
    "gx_graph_free": (None, [_pointer]),
}


class NativeGraphs:
    """The kernels over graphs of one loaded library."""

    def __init__(self, kernels: Native) -> None:
        self._kernels, self._library = kernels, kernels._library
        for name, (answer, arguments) in _SIGNATURES.items():
            function = getattr(self._library, name)
            function.restype, function.argtypes = answer, arguments

    def block_edges(
        self,
        spans: Sequence[Span],
        index: BlockIndex,
        rules: PointerRules,
        live: Mask,
        most: Optional[int] = None,
    ) -> Edges:
        """As :func:`gdbext.kernels.graph.block_edges`."""
        held, blocks = native._Held(spans), self._kernels._blocks(index)
        chosen = _marks(live, len(index))
        most = _ALL if most is None else max(most, 0)
        how = (native._pointer_rules(rules), min(most, _ALL))
        with self._job(self._library.gx_edges_new(held.reference, blocks, native._place(chosen), *how)) as job:
            found = self._library.gx_edges_found(job)
            if found == _NO_ROOM:
                raise TooManyEdges(f"more than the {most} edges that were asked for")
            first, to = np.empty(len(index) + 1, np.uint64), np.empty(self._told(found), np.uint32)
            interior = np.empty(found, np.uint8)
            columns = (native._place(first), native._place(to), native._place(interior))
            self._told(self._library.gx_edges_write(job, len(index), found, *columns))
        return Edges(first, to, interior.view(np.bool_))

    def find_components(self, edges: Edges, wanted: Mask, interior: bool = True) -> U32:
        """As :func:`gdbext.kernels.graph.find_components`."""
        rows, graph, kept = _graph(edges)
        chosen, found = _marks(wanted, rows), np.empty(rows, np.uint32)
        arguments = (ctypes.byref(graph), native._place(chosen), int(interior))
        with self._job(self._library.gx_components_new(*arguments)) as job:
            self._told(self._library.gx_components_write(job, rows, native._place(found)))
        del kept
        return found

    def breadth_first(self, edges: Edges, roots: U8, live: Mask) -> Tree:
        """As :func:`gdbext.kernels.graph.breadth_first`."""
        rows, graph, kept = _graph(edges)
        begun, chosen = _marks(roots, rows), _marks(live, rows)
        parent, depth = np.empty(rows, np.uint32), np.empty(rows, np.uint32)
        arguments = (ctypes.byref(graph), native._place(begun), native._place(chosen))
        with self._job(self._library.gx_breadth_new(*arguments)) as job:
            self._told(self._library.gx_breadth_write(job, rows, native._place(parent), native._place(depth)))
        del kept
        return Tree(parent, depth)

    def find_dominators(self, edges: Edges, entry: U32, entries: U32) -> U32:
        """As :func:`gdbext.kernels.dominators.find_dominators`."""
        rows, graph, kept = _graph(edges)
        entry, entries = native._column(entry, "u4"), native._column(entries, "u4")
        if len(entry) != len(entries):
            raise NativeError("each entry is one of a row and a root")
        roots = int(entries.max()) + 1 if len(entries) else 0
        arguments = (native._place(entry), native._place(entries), len(entry), roots)
        begun = self._library.gx_dominators_new(ctypes.byref(graph), *arguments)
        del edges, kept  # it has its own, in less room
        with self._job(begun) as job:
            found = np.empty(rows + roots, np.uint32)
            self._told(self._library.gx_dominators_write(job, len(found), native._place(found)))
        return found

    def sum_up_tree(self, dominator: U32, size: U64) -> Tuple[U64, U32]:
        """As :func:`gdbext.kernels.dominators.sum_up_tree`."""
        dominator, size = native._column(dominator, "u4"), native._column(size, "u8")
        nodes = len(dominator)
        total, count = np.empty(nodes, np.uint64), np.empty(nodes, np.uint32)
        given = (native._place(dominator), native._place(size), len(size), nodes)
        with self._job(self._library.gx_retained_new(*given, native._place(total), native._place(count))) as job:
            self._told(self._library.gx_retained_sound(job))
        return total, count

    @contextmanager
    def _job(self, job: Optional[int]) -> Iterator[int]:
        """Run a job to its end and give it up after use; an interrupt is met between its steps."""
        try:
            begun = self._kernels.begun(job)
            self._library.gx_threads(threads())
            while not self._told(self._library.gx_graph_run(begun, native.step_milliseconds())):
                check()
            relieve()
            yield begun
        finally:
            self._library.gx_graph_free(job)

    def _told(self, answer: int) -> int:
        return self._kernels._told(answer)


def _graph(edges: Edges) -> Tuple[int, _Edges, Any]:
    """Return the rows, the graph as the library takes it, and what must be kept alive with it."""
    columns = [native._column(edges.first, "u8"), native._column(edges.to, "u4"), native._column(edges.interior, "u1")]
    first, to, interior = columns
    if not len(first) or len(to) != len(interior):
        raise NativeError("a graph has one more beginning than rows, and a mark for each edge")
    return len(first) - 1, _Edges(*map(native._place, columns), len(first) - 1, len(to)), columns


def _marks(marks: Any, rows: int) -> U8:
    if len(marks) != rows:
        raise NativeError("a mark is needed for every row")
    return native._column(marks, "u1")
