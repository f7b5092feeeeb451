"""How many examples a property test takes: all of them with ``--boards=full``, a quarter in the usual run."""

from __future__ import annotations

SHARE = 4
FEWEST = 20
every = False


def examples(count: int) -> int:
    """Return how many of so many examples this run takes."""
    return count if every else max(count // SHARE, min(count, FEWEST))
