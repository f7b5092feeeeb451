"""A dataset as one document: what the page of ``fleet report`` shows, each figure by a question in SQL."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Sequence

from gdbext.fleet.asking import Dataset
from gdbext.fleet.questions import NEW
from gdbext.version import __version__
from gdbext.wording import unicode_text

SCHEMA = "gdbext/fleet-report/1"

_BARS = 100
_UNITS = {"minute": 60, "hour": 3600, "day": 86400, "week": 604800, "month": 2629800, "year": 31557600}  # seconds
_WORST = 10

_TOTALS = """
SELECT count(*) AS cores, count(*) FILTER (status = 2) AS failed, count(*) FILTER (signature IS NOT NULL) AS with_cause,
       count(*) FILTER (status = 3) AS partial, count(DISTINCT signature) AS signatures, count(DISTINCT host) AS hosts,
       count(DISTINCT program) AS programs, count(DISTINCT build_id) AS builds,
       min(time) FILTER (time > 0) AS first, max(time) FILTER (time > 0) AS last
FROM cores
"""
_CAUSES = """
SELECT signature, program, any_value(cause) AS cause, count(*) AS cores, count(DISTINCT host) AS hosts,
       count(DISTINCT build_id) AS builds, min(time) AS first, max(time) AS last,
       arg_min(build_id, time) AS first_build, arg_max(build_id, time) AS last_build, arg_max(path, time) AS example
FROM cores WHERE signature IS NOT NULL GROUP BY signature, program
ORDER BY cores DESC, last DESC, signature, program LIMIT ?
"""
_NEW = f"""
SELECT signature, program, cause, cores, hosts, example, since AS first FROM (
    SELECT *, (SELECT min(time) FROM causes JOIN cores USING (core) WHERE causes.signature = found.signature) AS since
    FROM ({NEW}) AS found
) ORDER BY since, signature LIMIT ?
"""
_RATE = """
SELECT epoch(date_trunc('{unit}', taken)) AS time, count(*) AS cores, count(*) FILTER (signature IS NOT NULL) AS causes,
       count(*) FILTER (status = 2) AS failed
FROM cores WHERE time > 0 GROUP BY 1 ORDER BY 1
"""
_MEMORY = """
SELECT program, host, any_value(cores.time) AS time, sum(in_core) AS bytes, any_value(path) AS example
FROM mappings JOIN cores USING (core) GROUP BY core, program, host HAVING bytes > 0
ORDER BY bytes DESC, example LIMIT ?
"""
_LEAKS = """
SELECT program, host, any_value(cores.time) AS time, sum(leak_groups.bytes) AS bytes, arg_max(type, kept_bytes) AS type,
       any_value(path) AS example
FROM leak_groups JOIN cores USING (core) GROUP BY core, program, host HAVING bytes > 0
ORDER BY bytes DESC, example LIMIT ?
"""
_BUILDS = """
SELECT program, build_id, count(*) AS cores, count(DISTINCT signature) AS signatures, min(time) AS first,
       max(time) AS last
FROM cores WHERE program IS NOT NULL GROUP BY program, build_id ORDER BY cores DESC, program, build_id LIMIT ?
"""
_HOSTS = """
SELECT host, count(*) AS cores, count(*) FILTER (status = 2) AS failed, count(DISTINCT signature) AS signatures,
       min(time) AS first, max(time) AS last
FROM cores WHERE host IS NOT NULL GROUP BY host ORDER BY cores DESC, host LIMIT ?
"""
_FAILURES = """
SELECT error_kind AS kind, count(*) AS cores, min(error) AS message, arg_max(path, time) AS example
FROM cores WHERE status = 2 GROUP BY error_kind ORDER BY cores DESC, kind LIMIT ?
"""
_PROBLEMS = """
SELECT problems.kind AS kind, corruption, count(DISTINCT core) AS cores, min(message) AS message
FROM problems GROUP BY problems.kind, corruption ORDER BY corruption DESC, cores DESC, kind LIMIT ?
"""
_LISTS = {
    "causes": _CAUSES, "builds": _BUILDS, "hosts": _HOSTS, "failures": _FAILURES, "problems": _PROBLEMS,
}  # fmt: skip


def make_document(dataset: Dataset, name: str, since: float, rows: int) -> Mapping[str, Any]:
    """Return the document, with ``cut``: how many rows each list had that is shorter here.

    :param name: of the dataset, as the user gave it.
    :param since: a cause is new that no core before has; seconds since the epoch.
    :param rows: of each list at most.
    """
    (totals,) = _rows(dataset, _TOTALS)
    data: Dict[str, Any] = {"target": unicode_text(name), "totals": totals, "since": since}
    data["rate"] = _rate(dataset, totals)
    found = {key: _rows(dataset, text, [1 << 62]) for key, text in _LISTS.items()}
    found["new"] = _rows(dataset, _NEW, [since, 1 << 62])
    data["new_causes"] = len(found["new"])
    data.update({key: each[:rows] for key, each in found.items()})
    data.update(memory=_rows(dataset, _MEMORY, [_WORST]), leaks=_rows(dataset, _LEAKS, [_WORST]))
    new = {row["signature"] for row in found["new"]}
    data["causes"] = [{**row, "new": row["signature"] in new} for row in data["causes"]]
    cut = {f"data.{key}": len(each) for key, each in found.items() if len(each) > rows}
    return {"schema": SCHEMA, "tool": {"name": "gdbext", "version": __version__}, "data": data, "cut": cut}


def _rate(dataset: Dataset, totals: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return how many cores there were in each stretch of time, in stretches that a picture has room for."""
    span = (totals["last"] or 0) - (totals["first"] or 0)
    unit = next((unit for unit, seconds in _UNITS.items() if span / seconds < _BARS), "year")
    bars = _rows(dataset, _RATE.format(unit=unit))[-10 * _BARS :]
    return {"unit": unit, "seconds": _UNITS[unit], "bars": bars}


def _rows(dataset: Dataset, text: str, values: Sequence[Any] = ()) -> List[Dict[str, Any]]:
    result = dataset.ask(text, values)
    return [dict(zip(result.columns, map(_plain, row))) for row in result.rows]


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; sums are of a type that Python has as int."""
    return unicode_text(value) if isinstance(value, str) else json.loads(json.dumps(value))
