"""TOML as text: the little of it that shapes are written in."""

from __future__ import annotations

import json
from typing import Iterable, Optional, Sequence, Union

Value = Union[str, int, bool, Sequence[int], Sequence[str], None]


class Document:
    """A TOML file being written; keys whose value is None, "" or () are left out."""

    def __init__(self) -> None:
        self._lines: "list[str]" = []

    @property
    def text(self) -> str:
        """What has been written."""
        return "\n".join(self._lines) + "\n"

    def comment(self, text: str) -> None:
        """Write a line for people."""
        self._lines.append(f"# {' '.join(text.split())}")

    def section(self, name: str, many: bool = False) -> None:
        """Begin a table, or the next of an array of tables."""
        self._lines.extend(["", f"[[{name}]]" if many else f"[{name}]"])

    def key(self, name: str, value: Value, why: Optional[str] = None) -> None:
        """Write one key, with a comment behind it."""
        if value is None or value == "" or (isinstance(value, (tuple, list)) and not value):
            return
        behind = f" # {why}" if why else ""
        self._lines.append(f"{name} = {_written(value)}{behind}")

    def keys(self, rows: "Iterable[tuple[str, Value]]") -> None:
        """Write several keys."""
        for name, value in rows:
            self.key(name, value)


def _written(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if -10 < value < 256 else hex(value)
    return json.dumps(value if isinstance(value, str) else list(value or ()), ensure_ascii=False)


__all__ = ["Document", "Value"]
