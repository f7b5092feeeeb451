"""Chains of pointers in the DOT language, for graphviz."""

from __future__ import annotations

from itertools import islice
from typing import Dict, Iterator, Optional

from gdbext.analysis.pins.path import Paths, Step

_MOST = 2000  # pointers that are drawn


def dot_lines(found: Paths) -> Iterator[str]:
    """Iterate over the lines of a directed graph: roots, the blocks of each chain, and the pointers between them.

    Interior pointers are dashed; the block that was asked about is bold.
    """
    yield 'digraph "path" {\n  rankdir=LR; node [shape=box, fontname="sans-serif"];\n'
    labels: Dict[int, str] = {} if found.block is None else {found.block: _label(found.block, found.type, found.size)}
    for at, step in enumerate(islice(found.steps, _MOST)):
        source = f"r{at}" if step.block is None else f"b{step.block:x}"
        if step.block is None:
            yield f'  {source} [label="{_escaped(step.place)}", shape=ellipse];\n'
        else:
            labels[step.block] = _label(step.block, step.type, step.size)
        labels.setdefault(step.to, f"{step.to:#x}")
        style = ", style=dashed" if step.interior else ""
        yield f'  {source} -> b{step.to:x} [label="{_escaped(_edge(step))}"{style}];\n'
    for block, label in labels.items():
        bold = ", penwidth=2" if block == found.block else ""
        yield f'  b{block:x} [label="{_escaped(label)}"{bold}];\n'
    yield "}\n"


def _label(block: int, type_name: Optional[str], size: Optional[int]) -> str:
    return f"{block:#x}{f' {type_name}' if type_name else ''}, {size} bytes"


def _edge(step: Step) -> str:
    place = "" if step.block is None or step.offset is None else f"+{step.offset:#x}"
    return f"{place} to +{step.into:#x}" if step.into else place


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
