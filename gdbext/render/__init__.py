"""Reports to text and JSON: knows the declarations of ``gdbext.report``, and nothing of targets.

Every function here yields pieces to be written one after the other as they are; a report whose rows
are made while they are printed (``report.Rows``) is never held whole.
"""

from gdbext.render.envelope import error_json, json_pieces
from gdbext.render.textual import remarks, text

__all__ = ["error_json", "json_pieces", "remarks", "text"]
