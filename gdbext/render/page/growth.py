"""What the section on growth shows: charts of figures over time, what changed, and the samples."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Optional, Sequence, Tuple

from gdbext.render.page.linechart import Line, chart, is_timed
from gdbext.render.page.texts import UNKNOWN, count, size, text
from gdbext.wording import count_text, span_text

Shape = Mapping[str, Any]
Row = Mapping[str, Any]

_OWNERS = 8  # lines of memory by owner
_FIGURES = 6  # lines of what findings are about
_TOTAL, _OWNER = "total", "owner"
_MEMORY = (_TOTAL, "memory")
_ORDER = (
    "type", "leak", "root", "table", "size", "leak-size", "heap", "owner", "arena-kind", "arena", "arena-free",
    "thread", "mapping", "reach", "total",
)  # fmt: skip
MOMENT = (("number", "sample", "number"), ("when", "when", "text"))  # columns
_GROWING = ("growing", "up and down but rising")


def charts(growth: Row) -> Sequence[Shape]:
    """Return the charts: what findings are about, then memory by owner."""
    known = {(row["kind"], row["key"]): row for row in growth["series"]}
    about = [known[key] for key in dict.fromkeys(map(_subject, growth["findings"])) if key in known]
    sized, counted = ([row for row in about if bool(row["bytes"]) == one][:_FIGURES] for one in (True, False))
    found = [
        _chart("growing", "What grows", sized, growth, "bytes"),
        _chart("counted", "What grows in number", counted, growth, "counts"),
        _chart("growth-owners", "Memory by owner over time", _owners(growth), growth, "bytes"),
    ]
    return [one for one in found if one["lines"]]


def extent(growth: Row) -> str:
    """Return what was compared, in a sentence."""
    samples = growth["samples"]
    over = f" over {span_text(samples[-1]['seconds'])}" if is_timed(samples) else "; when each was is not known"
    of = "one process" if growth["one_process"] else "several processes"
    return f"{count_text(len(samples), 'sample')} of {of}{over}."


def _subject(finding: Row) -> Tuple[Optional[str], Optional[str]]:
    """Return kind and key of the figure that a finding is about."""
    details = finding["details"]
    if finding["kind"] == "fragmentation-growth":
        return "heap", f"{details.get('allocator')} free"
    totals = {"thread-growth": (_TOTAL, "threads"), "arena-growth": (_TOTAL, "arenas")}
    return totals.get(finding["kind"], (details.get("of"), details.get("key")))


def _owners(growth: Row) -> Sequence[Row]:
    """Return all memory, and the owners that had most of it in any sample."""
    memory = [row for row in growth["series"] if (row["kind"], row["key"]) == _MEMORY]
    owners = [row for row in growth["series"] if row["kind"] == _OWNER and any(row["bytes"])]
    return [*memory, *sorted(owners, key=lambda row: -max(value or 0 for value in row["bytes"]))[:_OWNERS]]


def _chart(name: str, title: str, rows: Sequence[Row], growth: Row, measure: str) -> Shape:
    """Return a chart, its lines numbered by their colours: 0 is all memory."""
    lines = [Line(_named(row), row[measure]) for row in rows]
    samples = growth["samples"]
    drawn = chart(lines, samples, measure == "bytes") if lines else {"lines": ()}
    kind = "size" if measure == "bytes" else "count"
    columns = [*MOMENT, *((str(at), text(line.name, 60), kind) for at, line in enumerate(lines))]
    table = [
        {**_moment(sample), **{str(column): line.values[at] for column, line in enumerate(lines)}}
        for at, sample in enumerate(samples)
    ]
    first = 0 if rows and (rows[0]["kind"], rows[0]["key"]) == _MEMORY else 1
    return {**drawn, "id": name, "title": title, "columns": columns, "rows": table, "first": first}


def _named(row: Row) -> str:
    """Return what a figure is of, in words."""
    kind, key = row["kind"], row["key"]
    if kind in ("size", "leak-size"):
        return f"blocks of {key} bytes" if kind == "size" else f"leaked blocks of {key} bytes"
    if kind == _OWNER:
        return str(key.rpartition("/")[2] or key)
    words = {_TOTAL: "all {}" if key == "memory" else "{}", "leak": "leaked {}", "table": "table {}"}
    return words.get(kind, "{}").format(key)


def changes(growth: Row) -> Sequence[Shape]:
    """Return what changed, or may have: what grows first, in the order in which one asks, then what changed most."""
    rows = [row for row in growth["series"] if row["key"] and (row["change"] or row["change_count"] or _is_open(row))]
    return list(map(_changed, sorted(rows, key=_weight)))


def _is_open(row: Row) -> bool:
    return row["now"] is None and row["now_count"] is None


def _weight(row: Row) -> Tuple[bool, int, int, int]:
    changed = (-abs(row[name] or 0) for name in ("change", "change_count"))
    return (row["shape"] not in _GROWING, _ORDER.index(row["kind"]) if row["kind"] in _ORDER else 0, *changed)


def _changed(row: Row) -> Shape:
    """Return a row whose figures are pairs: as they are, and as they are read."""
    sized = any(value is not None for value in row["bytes"])
    plain = {name: (row[name], size(row[name])) for name in ("before", "now")}
    counted = {name: (row[name], count(row[name])) for name in ("before_count", "now_count")}
    return {
        **plain, **counted, "kind": row["kind"], "of": _named(row), "shape": row["shape"],
        "change": (row["change"], signed(row["change"], sized=True)),
        "change_count": (row["change_count"], signed(row["change_count"], sized=False)),
        "per_hour": (row["per_hour"], signed(row["per_hour"], sized=sized)),
    }  # fmt: skip


def signed(value: Optional[int], *, sized: bool) -> str:
    """Return a difference with its sign."""
    if value is None:
        return UNKNOWN
    written = size(abs(value)) if sized else count(abs(value))
    return written if not value else f"{'+' if value > 0 else '−'}{written}"


def findings(data: Row) -> Sequence[Row]:
    """Return all findings: what is critical first, then what grows."""
    grown = data["growth"]["findings"] if data["growth"] else []
    return sorted([*grown, *data["triage"]["findings"]], key=lambda one: one["severity"] != "critical")


def sample_rows(growth: Row) -> Iterator[Shape]:
    """Iterate over the samples, each with when it was in words."""
    for row in growth["samples"]:
        yield {**row, **_moment(row)}


def _moment(sample: Row) -> Shape:
    seconds = sample["seconds"]
    return {"number": sample["number"], "when": UNKNOWN if seconds is None else f"+{span_text(seconds)}"}
