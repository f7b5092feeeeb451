"""Pretty-printers, one file a family: the place where they are registered."""

from __future__ import annotations

from typing import Any, Callable, Sequence

# Each makes one collection (``gdb.printing.RegexpCollectionPrettyPrinter``), when it is registered.
COLLECTIONS: Sequence[Callable[[], Any]] = ()
