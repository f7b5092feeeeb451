"""Opens and walks what each line of a file names, EXPR or SHAPE: EXPR, and writes what came of it.

Sourced in gdb after the pack; the files are named by $asked and $answers.
"""

import json

import gdb

from gdbext.bridge.stops import session
from gdbext.starting import dependencies

dependencies.load()

# ruff: noqa: E402
from gdbext.bridge.expressions.values import located
from gdbext.bridge.stops.session import read_shapes
from gdbext.errors import GdbextError
from gdbext.progress import SILENT
from gdbext.structures.shapes.resolve import Overrides, open_located
from gdbext.structures.walk.bins import check_bins, walk_bins
from gdbext.structures.walk.lists import check_list, walk_list
from gdbext.structures.walk.model import ListHead, ProbeTable, Table
from gdbext.structures.walk.probes import check_probes, read_field, walk_probes
from gdbext.structures.walk.trees import check_tree, walk_tree


def walk(target, structure):
    if isinstance(structure, ListHead):
        found = walk_list(target, structure, 100_000, SILENT)
        return found, check_list(target, structure, found)
    if isinstance(structure, Table):
        found = walk_bins(target, structure, 100_000, SILENT)
        return found, check_bins(target, structure, found)
    if isinstance(structure, ProbeTable):
        found = walk_probes(target, structure, SILENT)
        return found, check_probes(target, structure, found)
    found = walk_tree(target, structure, 100_000, SILENT)
    return found, check_tree(target, structure, found)


def open_line(line):
    shape, _, expression = line.rpartition(": ")
    now = session.current()
    place = located(gdb.parse_and_eval(expression), expression)
    opened = open_located(now.target, now.types, read_shapes(), place, Overrides(shape=shape or None))
    return now.target, opened.structure


def describe(line):
    target, structure = open_line(line)
    found, problems = walk(target, structure)
    node = getattr(structure, "node", structure)
    element = getattr(node, "element", 0)
    row = {
        "shape": structure.shape,
        "entries": structure.entries,
        "element_type": getattr(node, "type", None) or getattr(node, "element_type", None),
        "elements": [hex(address - element) for address in found.nodes.tolist()],
        "problems": [problem.kind for problem in problems],
        "messages": [problem.message for problem in problems],
    }
    if hasattr(found, "end"):
        row["end"] = found.end.reason.word
    else:
        row["bins"] = found.lengths.tolist()
        row["ends"] = sorted({end.reason.word for end in found.ends.values()})
    if isinstance(structure, ProbeTable):
        row["slots"] = found.slots.tolist()
        row["homes"] = found.owners.tolist()
        row["distances"] = None if found.distances is None else found.distances.tolist()
        row["keys"] = read_field(target, structure, found, structure.key)[0].tolist()
        if structure.hash:
            row["hashes"] = read_field(target, structure, found, structure.hash)[0].tolist()
    return row


def main():
    with open(gdb.parse_and_eval("$asked").string()) as stream:
        lines = stream.read().split("\n")
    rows = {}
    for line in filter(None, lines):
        try:
            rows[line] = describe(line)
        except GdbextError as error:
            rows[line] = {"error": str(error)}
    with open(gdb.parse_and_eval("$answers").string(), "w") as stream:
        json.dump(rows, stream)


main()
