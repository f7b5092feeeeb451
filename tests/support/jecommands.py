"""What the ``jemalloc`` commands say, beside what jemalloc told of itself.

As in :mod:`tests.support.jecompare`, but from the commands' JSON: every figure is one that a reader of the commands
sees. The one difference is the 64 KiB that ``malloc_stats_print`` allocates from arena 0 since 5.3: they are in its
figures and freed by then, so that there is one live block less, and one more is counted as freed.
"""

from __future__ import annotations

from typing import Any, Iterator

from tests.support.jecompare import BUFFERED, PRINT_BUFFER, Figure
from tests.support.jestages import JeStage
from tests.support.jetruth import JeTruth

Answers = dict[str, dict[str, Any]]
_OF_THE_CORE = ("absent-file",)  # a core without its files, on boards where these are gone
_SUMS = ("allocated", "active", "metadata", "resident", "mapped", "retained")


def ask(here: JeStage) -> Answers:
    """Return the envelopes of the commands, by what stands behind ``jemalloc``, from one gdb."""
    names = ["arenas", "large", "decay", "check", *(f"bins {index}" for index in sorted(here.je.arenas))]
    return dict(zip(names, here.answers(*(f"gx jemalloc {name}" for name in names))))


def differences(answers: Answers, je: JeTruth) -> list[str]:
    """Return the figures that are not equal, in words; damage, problems and what is missing, too."""
    unequal = [
        f"{name}: {ours}, jemalloc says {theirs}"
        for name, ours, theirs in figures(answers, je)
        if ours != theirs
    ]
    problems = [
        problem["message"]
        for answer in answers.values()
        for problem in answer["problems"]
        if problem["kind"] not in _OF_THE_CORE
    ]
    return [*unequal, *dict.fromkeys(problems), *(name for name in answers if not answers[name]["complete"])]


def figures(answers: Answers, je: JeTruth) -> Iterator[Figure]:
    """Iterate over name, ours, jemalloc's."""
    data = {name: answer["data"] for name, answer in answers.items()}
    yield "arenas", [row["index"] for row in data["arenas"]["arenas"]], sorted(je.arenas)
    for name in _SUMS:
        yield name, data["arenas"]["totals"][name], je.after[name]
    for row, decay in zip(data["arenas"]["arenas"], data["decay"]["arenas"]):
        index = row["index"]
        bins = {one["index"]: one for one in data[f"bins {index}"]["bins"]}
        for figure in (*_arena(row, je), *_decay(row, decay, je), *_bins(index, bins, je)):
            yield (f"arena {index} {figure[0]}", *figure[1:])
    yield from _large(data["large"]["classes"], je)
    yield "damage", data["check"]["damage"], []


def _arena(row: dict[str, Any], je: JeTruth) -> Iterator[Figure]:
    after, page = je.arenas[row["index"]], je.raw["page"]
    yield "allocated", row["allocated"], after["small.allocated"] + after["large.allocated"]
    yield "small", row["small"], after["small.allocated"]
    yield "large", row["large"], after["large.allocated"]
    for name in ("active", "dirty", "muzzy"):
        yield name, row[name], after[f"p{name}"] * page
    for name in ("retained", "mapped", "resident", "internal"):
        yield name, row[name], after[name]
    yield "metadata", row["metadata"], after["base"] + after["internal"]
    yield "attached", row["attached"], after["nthreads"]
    if "abandoned_vm" in je.arena_stats[row["index"]]:
        yield "abandoned_vm", row["abandoned_vm"], je.arena_stats[row["index"]]["abandoned_vm"]


def _decay(row: dict[str, Any], decay: dict[str, Any], je: JeTruth) -> Iterator[Figure]:
    index = row["index"]
    after, stats = je.arenas[index], je.arena_stats[index]
    yield "decay's index", decay["index"], index
    # HPA's dirty pages do not decay; 5.3.1 counts them among the arena's
    elsewhere = (row["hpa_dirty"] or 0) // je.raw["page"] if je.version == "5.3.1" else 0
    for kind, pages in (("dirty", after["pdirty"] - elsewhere), ("muzzy", after["pmuzzy"])):
        ours = decay[kind]
        yield f"{kind} time", ours["decay_ms"], stats[f"{kind}_decay_ms"]
        yield f"{kind} pages", ours["npages"], pages
        for name, theirs in (("sweeps", "npurge"), ("madvises", "nmadvise"), ("purged", "purged")):
            yield f"{kind} {name}", ours[name], after[f"{kind}_{theirs}"]


def _bins(arena: int, bins: dict[int, dict[str, Any]], je: JeTruth) -> Iterator[Figure]:
    for index, told in enumerate(je.arena_stats[arena]["bins"]):
        row = bins.get(index)
        if row is None:
            yield f"bin {index} ever used", 0, told["nmalloc"] + told["curslabs"]
            continue
        for name in ("nmalloc", "ndalloc", "curregs", "curslabs"):
            yield f"bin {index} {name}", row[name], told[name]
        yield f"bin {index} regions", row["used_regions"], told["curregs"]
        yield f"bin {index} slabs", row["slabs"], told["curslabs"]
        yield f"bin {index} all slabs", row["current"] + row["nonfull"] + row["full"], told["curslabs"]
        if "nonfull_slabs" in told:
            yield f"bin {index} nonfull_slabs", row["nonfull_slabs"], told["nonfull_slabs"]
            yield f"bin {index} slabs not full", row["nonfull"], told["nonfull_slabs"]


def _large(rows: list[dict[str, Any]], je: JeTruth) -> Iterator[Figure]:
    first = len(je.bin_sizes)
    known = {row["szind"]: row for row in rows}
    none = {"blocks": 0, "curlextents": 0, "nmalloc": 0, "ndalloc": 0}
    for at, size in enumerate(int(row["size"]) for row in je.stats["arenas"]["lextent"]):
        told = [stats["lextents"][at] for stats in je.arena_stats.values()]
        ours = known.get(first + at, none)
        buffer = je.version in BUFFERED and size == PRINT_BUFFER
        live = sum(one["curlextents"] for one in told) - buffer
        yield f"large class {first + at}", ours["curlextents"], live
        yield f"large class {first + at} blocks", ours["blocks"], live
        if all("nmalloc" in one for one in told):
            yield f"large class {first + at} nmalloc", ours["nmalloc"], sum(one["nmalloc"] for one in told)
            freed = sum(one["ndalloc"] for one in told) + buffer
            yield f"large class {first + at} ndalloc", ours["ndalloc"], freed
