"""Small parts of a dataset, as many short runs leave them, joined into one."""

from __future__ import annotations

from typing import List, Mapping, Sequence

from gdbext.fleet.kinds import NAMES, find_kind
from gdbext.fleet.layout import LAST, Layout, Part, unwritable
from gdbext.fleet.parts import load, read_table, schema_of, write_table

_SMALL = 4 << 20  # bytes, of all files of a part
_LARGEST = 32 << 20  # of those that become one
_FEW = 8  # small parts that are let be


def merge_small(layout: Layout, part: Part) -> None:
    """Make one part of small ones where there are many. However it is ended, the same rows count before and after.

    :param part: a new one.
    :raises DatasetError: it cannot be written; then the small ones count.
    """
    if part not in layout.found(LAST):  # it is there where somebody has killed who did this before us
        small = _small(layout)
        if len(small) > _FEW:
            small = [one for one in small if _is_ours(layout, one)]
        if len(small) <= _FEW:
            return
        _join(layout, small, part)
    layout.clean(NAMES)


def _join(layout: Layout, small: Sequence[Part], part: Part) -> None:
    arrow = load()
    try:
        layout.replace(part, small)
    except OSError as error:
        raise unwritable(layout.folder, error) from None
    for kind in sorted(NAMES, key=lambda name: name == LAST):
        there = layout.found(kind)
        tables = [read_table(layout, layout.name(kind, one)) for one in small if one in there]
        if tables:
            write_table(layout, layout.name(kind, part), arrow.concat_tables(tables))


def _small(layout: Layout) -> Sequence[Part]:
    """Return the small parts that together are not too large, the oldest first."""
    sizes = _sizes(layout)
    found: List[Part] = []
    whole = 0
    for part in layout.parts():
        if sizes[part] < _SMALL and whole + sizes[part] <= _LARGEST:
            found.append(part)
            whole += sizes[part]
    return found


def _sizes(layout: Layout) -> Mapping[Part, int]:
    """Return the bytes of each part that counts."""
    files = layout.place.sizes()
    return {part: sum(files.get(layout.name(kind, part), 0) for kind in layout.kinds()) for part in layout.parts()}


def _is_ours(layout: Layout, part: Part) -> bool:
    """Whether a part has no columns but those that this version writes."""
    table = read_table(layout, layout.name(LAST, part))
    return bool(table.schema.equals(schema_of(find_kind(LAST)), check_metadata=True))
