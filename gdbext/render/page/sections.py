"""What stands in each section of the page: figures and places of pictures, taken from the document and nowhere else."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from gdbext.render.page.layout import Box, nested, squarified
from gdbext.render.page.linechart import upright
from gdbext.render.page.texts import count, fixed, share, size, text

Shape = Mapping[str, Any]

TREEMAP = Box(0, 0, 1000, 420)
_HEAD = 20  # of a group, for its name
_TILES = 120
ICICLE = 1000
LEVEL = 22
_DEEPEST = 14
_NARROWEST = 0.6
_ARENAS = 60
_LENGTHS = 64
_POWERS = 18  # labels below sizes
_LOCKS = 40


def treemap(shares: Sequence[Mapping[str, Any]]) -> Sequence[Shape]:
    """Return the tiles of memory by owner: groups, and in each its owners."""
    groups: Dict[str, List[Mapping[str, Any]]] = {}
    for row in [row for row in shares if row["bytes"] > 0][:_TILES]:
        groups.setdefault(row["group"], []).append(row)
    order = sorted(groups, key=lambda name: -sum(row["bytes"] for row in groups[name]))
    sums = [sum(row["bytes"] for row in groups[name]) for name in order]
    whole = sum(sums)
    shapes: List[Shape] = []
    for at, (name, box) in enumerate(zip(order, squarified(sums, TREEMAP))):
        rows = groups[name]
        shapes.append(_tile(name, sums[at] / whole, sums[at], "group", box, at))
        if len(rows) == 1 and rows[0]["owner"] == name:
            shapes.append(_tile(name, sums[at] / whole, sums[at], rows[0]["kind"], box, at))
            continue
        head = _HEAD if box.h > 3 * _HEAD and box.w > 60 else 0
        inner = Box(box.x, box.y + head, box.w, box.h - head)
        for row, tile in zip(rows, squarified([row["bytes"] for row in rows], inner)):
            kind = "cached" if row["owner"].endswith(" tcache") else row["kind"]
            shapes.append(_tile(_short(row["owner"], name), row["bytes"] / whole, row["bytes"], kind, tile, at))
    return shapes


def _short(owner: str, group: str) -> str:
    return owner[len(group) + 1 :] if owner.startswith(f"{group} ") else owner.rpartition("/")[2] or owner


def _tile(name: str, part: float, bytes_: int, kind: str, box: Box, group: int) -> Shape:
    return {
        "name": text(name, 60), "title": f"{text(name)}: {size(bytes_)}, {share(part)}", "bytes": bytes_,
        "kind": kind, "group": group, "x": fixed(box.x), "y": fixed(box.y), "w": fixed(box.w), "h": fixed(box.h),
        "fits": box.h >= 15 and box.w >= 7.2 * min(len(text(name, 60)), 9), "size": size(bytes_),
        "two": box.h >= 34 and box.w >= 70, "room": int(box.w / 7.2),
    }  # fmt: skip


def icicle(tree: Sequence[Mapping[str, Any]]) -> Sequence[Shape]:
    """Return the nodes of what roots keep alive, from left to right and from roots down."""
    places = nested([row["above"] for row in tree], [row["bytes"] for row in tree], ICICLE)
    whole = sum(row["bytes"] for row in tree if row["above"] is None)
    shapes = []
    for row, (x, width, depth) in zip(tree, places):
        if width >= _NARROWEST and depth < _DEEPEST:
            name = text(row["name"], 120)
            title = f"{text(row['name'])}: {size(row['bytes'])}, {share(row['bytes'] / whole)}, {row['blocks']} blocks"
            shapes.append({
                "name": name, "title": title, "kind": text(row["kind"], 20), "bytes": row["bytes"], "depth": depth,
                "x": fixed(x), "w": fixed(width), "y": depth * LEVEL, "fits": width >= 30,
                "room": int((width - 6) / 6.6),
            })  # fmt: skip
    return shapes


def depth_of(shapes: Sequence[Shape]) -> int:
    """Return the height of an icicle."""
    return LEVEL * (1 + max((shape["depth"] for shape in shapes), default=0))


def stacked(rows: Sequence[Mapping[str, Any]], most: int) -> Sequence[Sequence[Tuple[str, str, str]]]:
    """Return for each row its bars, as kind, begin and width in per cent of the greatest row.

    :param rows: with ``used_bytes``, ``free_bytes``, and ``tcache_bytes`` or ``bytes`` for the rest.
    """
    bars = []
    for row in rows:
        at, pieces = 0.0, []
        for kind, bytes_ in _kinds(row):
            width = 100 * bytes_ / most if most else 0.0
            if bytes_:
                pieces.append((kind, fixed(at), fixed(width)))
            at += width
        bars.append(pieces)
    return bars


def _kinds(row: Mapping[str, Any]) -> Iterator[Tuple[str, int]]:
    cached = row.get("tcache_bytes")
    if "bytes" in row:
        cached = row["bytes"] - row["used_bytes"] - row["free_bytes"]
    yield from (("used", row["used_bytes"]), ("cached", cached or 0), ("free", row["free_bytes"]))


def total(row: Mapping[str, Any]) -> int:
    """Return all bytes of a row of :func:`stacked`."""
    return sum(bytes_ for _, bytes_ in _kinds(row))


def largest_arenas(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the arenas that are drawn: those with most bytes."""
    return sorted(rows, key=lambda row: -total(row))[:_ARENAS]


def histogram(rows: Sequence[Mapping[str, Any]], width: float, height: float) -> Shape:
    """Return the columns of bytes by size, in the order of sizes; each is used, cached and free from the ground up."""
    by_power = {row["from_size"]: row for row in rows}
    powers = list(_powers(by_power))
    axis = upright(max(map(total, rows), default=0), 0, height, sized=True)
    pitch = width / max(len(powers), 1)
    columns = [
        {**_column(power, by_power.get(power), height, axis.end), "x": fixed(at * pitch + 1),
         "w": fixed(max(pitch - 2, 1)), "middle": fixed((at + 0.5) * pitch)}
        for at, power in enumerate(powers)
    ]  # fmt: skip
    return {"columns": columns, "down": axis.marks, "every": -(-len(powers) // _POWERS) or 1}


def _column(power: int, row: Optional[Mapping[str, Any]], height: float, end: float) -> Shape:
    kinds = [] if row is None else list(_kinds(row))
    y, pieces = height, []
    for kind, bytes_ in kinds:
        y -= height * bytes_ / end
        if bytes_:
            pieces.append((kind, fixed(y), fixed(height * bytes_ / end)))
    held = ", ".join(f"{size(bytes_)} {kind}" for kind, bytes_ in kinds) or "none"
    return {"pieces": pieces, "title": f"{size(power)} to {size(2 * power)}: {held}", "label": size(power)}


def _powers(known: Iterable[int]) -> Iterator[int]:
    """Iterate over all sizes from the smallest that is known to the largest, each twice the one before."""
    power, last = min(known, default=1), max(known, default=0)
    while power <= last:
        yield power
        power = 2 * power or 1


def chain_lengths(table: Mapping[str, Any], width: float, height: float) -> Mapping[str, Any]:
    """Return the bars of a hash table's bins by length, and what chance would give: Poisson, of each table's load."""
    pairs = sorted((length, bins) for length, bins in table["histogram"])
    lengths = [length for length, _ in pairs]
    step = max(-(-(max(lengths, default=0) + 1) // _LENGTHS), 1)
    found: Dict[int, int] = {}
    for length, bins in pairs:
        found[length // step] = found.get(length // step, 0) + bins
    slots = range(max(found, default=0) + 1)
    fair = [sum(_fair(one, at * step, step) for one in table["tables"]) for at in slots]
    most = math.log1p(max([*found.values(), *fair, 1]))
    pitch = width / max(len(slots), 1)
    bars = []
    for at in slots:
        low, high = at * step, at * step + step - 1
        bins = found.get(at, 0)
        entries = f"{low} entries" if step == 1 else f"{low} to {high} entries"
        tall, expected = (height * math.log1p(number) / most for number in (bins, fair[at]))
        bars.append({
            "x": fixed(at * pitch), "w": fixed(max(pitch - 1, 0.5)), "h": fixed(tall),
            "y": fixed(height - tall), "fair": fixed(height - expected),
            "label": low, "middle": fixed((at + 0.5) * pitch), "bins": bins,
            "title": f"{entries}: {bins} bins; chance gives {fair[at]:.1f}",
        })  # fmt: skip
    marks = [10**power for power in range(12) if math.log1p(10**power) <= most]
    down = [(fixed(height * (1 - math.log1p(mark) / most)), count(mark)) for mark in marks]
    return {"bars": bars, "every": max(len(bars) // 16, 1), "down": down}


def _fair(table: Mapping[str, Any], first: int, count: int) -> float:
    """Return how many bins of these lengths chance gives a table."""
    load, bins = table.get("load"), table.get("bins") or 0
    if not load:
        return float(bins) if first == 0 else 0.0
    lengths = range(first, first + count)
    return sum(bins * math.exp(length * math.log(load) - load - math.lgamma(length + 1)) for length in lengths)


def waits(locks: Optional[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return who waits for what held by whom: one line of the picture for each lock, threads in rings marked."""
    if not locks:
        return []
    ringed = {number for cycle in locks["cycles"] for number in cycle}
    names = {row["number"]: row["name"] for row in locks["threads"]}
    lines = []
    for at, lock in enumerate(locks["locks"][:_LOCKS]):
        owner = lock["owner"] or {}
        holder = _holder(owner, lock, names)
        waiting = lock["waiting"]
        shown = ", ".join(str(number) for number in waiting[:6])
        more = f" and {len(waiting) - 6} more" if len(waiting) > 6 else ""
        lines.append({
            "y": at * 46, "waiters": f"thread{'s' if len(waiting) > 1 else ''} {shown}{more}",
            "lock": text(lock["name"] or lock["address"], 34), "primitive": text(lock["primitive"], 34),
            "holder": holder, "ring": owner.get("number") in ringed and bool(ringed & set(waiting)),
            "title": f"{len(waiting)} wait for {text(lock['name'] or lock['address'])}, held by {holder}",
        })  # fmt: skip
    return lines


def _holder(owner: Mapping[str, Any], lock: Mapping[str, Any], names: Mapping[int, Optional[str]]) -> str:
    number = owner.get("number")
    if number is not None:
        name = names.get(number)
        return f"thread {number}" + (f" {text(name, 20)}" if name else "")
    if owner.get("tid") is not None:
        return f"thread id {owner['tid']}, gone"
    candidates = lock.get("holder_candidates") or []
    return f"thread {candidates[0]['number']}, by mention" if candidates else "not known"
