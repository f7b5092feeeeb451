"""The wait-for graph in the DOT language, for graphviz."""

from __future__ import annotations

from typing import Iterator

from gdbext.analysis.locks.report import Knowledge
from gdbext.analysis.locks.waitgraph import build_graph
from gdbext.structures.locks.frames import label_of
from gdbext.structures.locks.model import Census, Primitive, Wait


def dot_lines(census: Census, known: Knowledge) -> Iterator[str]:
    """Iterate over the lines of a directed graph: threads, and what each waits for; cycles are red."""
    graph = build_graph(census)
    ringed = {number for cycle in graph.cycles for number in cycle.threads}
    waits = {wait.thread.number: wait for wait in census.waits}
    involved = sorted({*graph.edges, *graph.edges.values(), *graph.lost})
    yield 'digraph "wait-for" {\n  rankdir=LR; node [shape=box, fontname="sans-serif"];\n'
    for number in involved:
        colour = ', color=red, fontcolor=red' if number in ringed else ""
        yield f'  t{number} [label="{_escaped(_title(waits[number], known))}"{colour}];\n'
    for waiter, owner in sorted(graph.edges.items()):
        colour = ", color=red" if waiter in ringed and owner in ringed else ""
        yield f'  t{waiter} -> t{owner} [label="{_escaped(_edge(waits[waiter], known))}"{colour}];\n'
    for waiter, tid in sorted(graph.lost.items()):
        yield f'  gone{tid} [label="thread id {tid}, gone", style=dashed];\n'
        yield f'  t{waiter} -> gone{tid} [label="{_escaped(_edge(waits[waiter], known))}"];\n'
    yield "}\n"


def _title(wait: Wait, known: Knowledge) -> str:
    name = f" {wait.thread.name}" if wait.thread.name else ""
    frame = known.frames.get(wait.thread.number)
    return f"thread {wait.thread.number}{name}" + (f" in {label_of(frame)}" if frame is not None else "")


def _edge(wait: Wait, known: Knowledge) -> str:
    if wait.primitive is Primitive.JOIN or wait.lock is None:
        return "join"
    kind = wait.primitive.value if wait.primitive else "lock"
    return f"{kind} {known.name_of(wait.lock) or hex(wait.lock)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
