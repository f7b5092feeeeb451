"""Figures of a dataset as Prometheus reads them from a file.

Upstream: Prometheus, "Exposition formats", text format 0.0.4; node_exporter's textfile collector takes files ending in
``.prom``.
"""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence, Tuple

from gdbext.fleet.asking import Dataset
from gdbext.wording import unicode_text

_CORES = "SELECT coalesce(program, '') AS program, status, count(*) FROM cores GROUP BY ALL ORDER BY ALL"
_CAUSES = """
SELECT signature, coalesce(program, ''), any_value(cause), count(*) FROM cores WHERE signature IS NOT NULL
GROUP BY ALL ORDER BY 4 DESC, 1, 2 LIMIT 100
"""
_NEWEST = "SELECT coalesce(max(time), 0) FROM cores"


def metrics_text(folder: str, run: Mapping[str, float]) -> str:
    """Return the figures.

    :param folder: of the dataset.
    :param run: figures of the last run, by what follows ``gdbext_fleet_run_`` in their names.
    :raises GdbextError: as :class:`Dataset`.
    """
    return "".join(f"{line}\n" for line in _lines(Dataset(folder), run))


def _lines(dataset: Dataset, run: Mapping[str, float]) -> Iterator[str]:
    labelled = [({"program": program, "status": status}, count) for program, status, count in dataset.ask(_CORES).rows]
    yield from _family("gdbext_fleet_cores", "Cores by program and status (0 nothing found, 1 findings, 2 no answer, 3 "
                       "not all was examined).", labelled)  # fmt: skip
    causes = [
        ({"signature": signature, "program": program, "cause": cause}, count)
        for signature, program, cause, count in dataset.ask(_CAUSES).rows
    ]
    yield from _family("gdbext_fleet_cause_cores", "Cores by their first cause, the hundred most frequent.", causes)
    ((newest,),) = dataset.ask(_NEWEST).rows
    yield from _family(
        "gdbext_fleet_newest_core_timestamp_seconds", "When the newest core was written.", [({}, newest)]
    )
    for name, value in run.items():
        yield from _family(f"gdbext_fleet_run_{name}", f"Of the last run: {name.replace('_', ' ')}.", [({}, value)])


def _family(name: str, what: str, rows: Sequence[Tuple[Mapping[str, Any], float]]) -> Iterator[str]:
    yield f"# HELP {name} {what}"
    yield f"# TYPE {name} gauge"
    for labels, value in rows:
        named = ",".join(f'{label}="{_escaped(str(text))}"' for label, text in labels.items())
        yield f"{name}{{{named}}} {value}" if named else f"{name} {value}"


def _escaped(text: str) -> str:
    return unicode_text(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
