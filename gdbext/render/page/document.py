"""The document that a page is made of: the answer's JSON, its lists and texts cut to what a page has room for."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional

from gdbext.render.envelope import json_pieces
from gdbext.report import Report
from gdbext.target import Target

SCHEMA = "gdbext/report/2"

_MOST_BYTES = 2_000_000  # of the document in a page
_ROWS = (500, 200, 60, 20, 5)  # of a list, until the document fits
MADE = 20_000  # rows of a list that are made at all; numbers and short texts that are kept
_DRAWN = (".parts", ".retained_tree", "growth.samples", "growth.series")  # bounded where made; others refer to them
_CHARACTERS = 2000
_ADDRESS = re.compile(r"0x[0-9a-f]{1,16}")
_NUMBERED = re.compile(r"\d[\d ]* bytes|[0-9a-f]{8,40}")
_COUNTED = re.compile(r"No findings|No heap was found|Nothing grows|\d[\d ]* findings?")  # how verdicts begin
_LEFT_OUT = "(left out)"


def make_document(report: Report, target: Optional[Target], rows: int) -> Mapping[str, Any]:
    """Return the document, with ``cut``: how many rows each list had that is shorter here, :data:`MADE` at most.

    :param rows: of each list at most.
    """
    whole = json.loads("".join(json_pieces(report, schema=SCHEMA, target=target, limit=MADE)))
    found: Mapping[str, Any] = {}
    for most in [rows, *(step for step in _ROWS if step < rows)]:
        cutter = _Cutter(most)
        found = {**cutter.cut(whole, ""), "cut": cutter.totals}
        if len(json.dumps(found)) <= _MOST_BYTES:
            break
    return found


def embedded(document: Mapping[str, Any]) -> str:
    """Return a document as text that ends no element of a page, whatever is in it."""
    text = json.dumps(document, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@dataclass
class _Cutter:
    """Cuts lists of objects, and texts.

    :ivar totals: by path, how long a list was.
    """

    rows: int
    totals: Dict[str, int] = field(default_factory=dict)

    def cut(self, value: Any, path: str) -> Any:
        """Return a value within bounds."""
        if isinstance(value, str):
            more = len(value) - _CHARACTERS
            return value if more <= 0 else f"{value[:_CHARACTERS]}… ({more} more characters)"
        if isinstance(value, dict):
            return {key: self.cut(item, f"{path}.{key}" if path else key) for key, item in value.items()}
        if isinstance(value, list):
            return self._cut_list(value, path)
        return value

    def _cut_list(self, value: List[Any], path: str) -> List[Any]:
        drawn = path.endswith(_DRAWN)
        short = drawn or not value or not isinstance(value[0], (dict, str)) or path.endswith(".block")
        most = MADE if short else self.rows
        if len(value) > most:
            self.totals[path] = len(value)
        return [self.cut(item, path) for item in value[:most]]


# -- without what the target says


# Fields that hold words of ours, whatever the target says; and those that hold sentences, with its names in them.
_OURS = (
    "schema", "version", "kind", "severity", "confidence", "use", "primitive", "recognised_by", "reach", "state",
    "syscall", "verdict", "signal", "unit", "blocks_are", "total", "reach",
)  # fmt: skip
_SENTENCES = (
    "message", "summary", "remedy", "evidence", "sentences", "explanations", "notes", "because", "death", "advice",
    "what", "steps", "kept_by", "doing", "meaning", "title", "remark", "owner_waits", "faults", "trail",
)  # fmt: skip
_ALLOCATORS = ("glibc", "jemalloc", "mimalloc", "musl", "tcmalloc")
_FIGURES = (
    "total", "owner", "heap", "arena-kind", "arena", "arena-free", "size", "type", "reach", "leak", "leak-size", "root",
    "table", "thread", "mapping",
)  # fmt: skip
_SHAPES = (
    "flat", "warming up", "one jump", "up and down", "growing", "up and down but rising", "shrinking",
    "too few samples",
)  # fmt: skip
_WORDS = (
    "", "anonymous rest", "thread stacks", "main thread stack", "reserved, no access", "thread stack guards", "files",
    "files and rest", "several roots", "smaller ones", "unknown", "C string", "zeros", "pointers", "UTF-16 text",
    "anonymous", *_ALLOCATORS, "[heap]", "[stack]", "[vdso]", "[vvar]", "cgroup", "RLIMIT_AS", "--memory-limit",
    *_FIGURES, *_SHAPES,
)  # fmt: skip
_OF_HEAPS = ("owner", "name", "group", "heap", "arena-kind", "arena", "arena-free")  # fields of their parts
_OF_SIZES = ("size", "leak-size", "group")
_OF_ALLOCATORS = re.compile(rf"({'|'.join(_ALLOCATORS)}) [a-z (),-]+")
_KNOWN_WORD = re.compile(r"[a-zA-Z][a-zA-Z0-9 _-]{0,40}")


class Redactor:
    """Replaces every text that the target may have a part in by a number, equal ones by the same."""

    def __init__(self) -> None:
        self._numbers: Dict[str, str] = {}
        self._counts: Dict[str, int] = {}

    def redacted(self, value: Any, key: str = "") -> Any:
        """Return a value without such texts.

        :param key: the field that it is of, or the field of the list.
        """
        if isinstance(value, dict):
            return {name: self.redacted(item, _field(name, value)) for name, item in value.items()}
        if isinstance(value, list):
            return [self.redacted(item, key) for item in value]
        if not isinstance(value, str) or self._is_ours(value, key):
            return value
        if key == "verdict" and (counted := _COUNTED.match(value)):
            return f"{counted[0]}{'; not all was examined' if 'not examined' in value else ''}."
        return _LEFT_OUT if key in _SENTENCES else self._number(value, key)

    def _is_ours(self, value: str, key: str) -> bool:
        if key in _SENTENCES:
            return False
        if key in _OURS:
            return _KNOWN_WORD.fullmatch(value) is not None or key in ("schema", "version")
        known = value in _WORDS or _ADDRESS.fullmatch(value) or _NUMBERED.fullmatch(value)
        part = key in _OF_HEAPS and _OF_ALLOCATORS.fullmatch(value)
        return bool(known or part or (key in _OF_SIZES and value.isdigit()))

    def _number(self, value: str, key: str) -> str:
        if value not in self._numbers:
            self._counts[key] = self._counts.get(key, 0) + 1
            self._numbers[value] = f"{key} {self._counts[key]}"
        return self._numbers[value]


def _field(name: str, row: Mapping[str, Any]) -> str:
    """Return what a field is about: the keys of growth are types, threads, sizes …, as their row says."""
    return str(row.get("kind") or row.get("of")) if name == "key" else name
