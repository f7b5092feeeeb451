"""Reports to text and JSON: knows the declarations of ``gdbext.report``, and nothing of targets.

Every function here yields pieces to be written one after the other as they are; a report whose rows
are made while they are printed (``report.Rows``) is never held whole.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # one form is asked for: the others are not loaded
    from gdbext.render.arrow import rows_to_arrow, to_arrow
    from gdbext.render.envelope import error_json, json_pieces
    from gdbext.render.textual import remarks, text

__all__ = ["error_json", "json_pieces", "remarks", "rows_to_arrow", "text", "to_arrow"]

_FORMS = {
    "rows_to_arrow": "arrow",
    "to_arrow": "arrow",
    "error_json": "envelope",
    "json_pieces": "envelope",
    "remarks": "textual",
    "text": "textual",
}


def __getattr__(name: str) -> Any:
    if name not in _FORMS:
        raise AttributeError(name)
    return getattr(import_module(f"gdbext.render.{_FORMS[name]}"), name)
