"""Run in gdb by test_containers_c.py: walks the containers that a program's truth names, through the Python API.

The convenience variables $truth and $answer hold the names of the two files.
"""

import json
import shlex

import gdb

from gdbext.starting import dependencies

dependencies.load()

from gdbext.analysis.tables.counts import check_structure, walk_structure  # noqa: E402
from gdbext.bridge.stops.session import current  # noqa: E402
from gdbext.errors import GdbextError  # noqa: E402
from gdbext.structures.shapes.resolve import Overrides, open_located  # noqa: E402
from gdbext.structures.walk.model import BinsWalk, End  # noqa: E402

MOST = 1 << 20


def manner(options):
    words = shlex.split(options)
    chosen = {}
    while words:
        name = words.pop(0)[2:]
        chosen[name] = (words.pop(0), words.pop(0)) if name == "container" else words.pop(0)
    return Overrides(**chosen)


def bins_of(each):
    """Return [bin, element…] of each bin that is not empty."""
    if not isinstance(each.walk, BinsWalk):
        return [[0, *each.elements.tolist()]] if len(each.elements) else []
    rows, at = [], 0
    for number, length in enumerate(each.walk.lengths.tolist()):
        if length:
            rows.append([number, *each.elements[at : at + length].tolist()])
        at += length
    return rows


def ends_of(each):
    if not isinstance(each.walk, BinsWalk):
        reason = each.walk.end.reason
        return [] if reason.sound else [[0, reason.word]]
    reasons = map(End, each.walk.reasons.tolist())
    return [[number, reason.word] for number, reason in enumerate(reasons) if not reason.sound]


def walked(case):
    opened = open_located(
        session.target, session.types, session.shapes, session.locate(case["expr"]), manner(case["options"])
    )
    structure, nodes, ends, bins, entries = opened.structure, [], [], 0, 0
    walks = walk_structure(session.target, structure, MOST, session.progress)
    for each in walks:
        size = len(each.walk.lengths) if isinstance(each.walk, BinsWalk) else 0
        nodes += [[bins + row[0], *row[1:]] for row in bins_of(each)]
        ends += [[bins + number, word] for number, word in ends_of(each)]
        bins += size
        entries = None if each.table.entries is None or entries is None else entries + each.table.entries
    told = [*opened.problems, *check_structure(session.target, walks)]
    return {
        "address": structure.address,
        "shape": structure.shape,
        "bins": bins,
        "entries": entries,
        "nodes": nodes,
        "ends": ends,
        "problems": sorted({problem.kind for problem in told}),
        "types": [each.element_type for each in walks],
        "described": opened.described,
    }


def answer(case):
    try:
        return walked(case)
    except GdbextError as error:
        return {"error": error.message, "hint": error.hint}


session = current()
with open(gdb.parse_and_eval("$truth").string()) as stream:
    cases = json.load(stream)["cases"]
answers = {case["name"]: answer(case) for case in cases}
with open(gdb.parse_and_eval("$answer").string(), "w") as stream:
    json.dump(answers, stream)
