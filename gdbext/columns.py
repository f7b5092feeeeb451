"""Many rows at once as columns: a table of millions of rows without an object for each.

Knows no numpy: a column's values are whatever sequence has ``tolist``, or a list.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

if TYPE_CHECKING:
    import numpy.typing as npt

    Values = Union[npt.NDArray[Any], List[Any]]
    Known = npt.NDArray[Any]

ROWS_AT_ONCE = 1 << 13


@dataclass(frozen=True)
class Column:
    """The values of one field for some rows.

    :param values: an array, or a list in which None is unknown.
    :param known: of an array, which values are known; None: all.
    :param words: what the values are positions in, where a few different ones come many times; None among them is
        unknown. None: the values are themselves.
    """

    values: Values
    known: Optional[Known] = None
    words: Optional[Sequence[Any]] = None

    def __len__(self) -> int:
        return len(self.values)

    def first(self, count: int) -> Column:
        """Return the column of the first so many rows."""
        return replace(self, values=self.values[:count], known=None if self.known is None else self.known[:count])

    def cells(self) -> List[Any]:
        """Return the values one by one, None for what is not known."""
        values = self.values if isinstance(self.values, list) else self.values.tolist()
        cells = values if self.words is None else map(self.words.__getitem__, values)
        if self.known is not None:
            return [cell if known else None for cell, known in zip(cells, self.known.tolist())]
        return list(cells)


Batch = Mapping[str, Column]  # by name of the field; all of one length


def constant(value: object, count: int) -> Column:
    """Return a column with one value in all rows."""
    return Column([0] * count, words=(value,))


def first_rows(batches: Iterable[Batch], most: Optional[int]) -> Iterator[Batch]:
    """Iterate over the batches that have rows, up to so many rows; None: all."""
    left = most
    for batch in batches:
        count = length_of(batch)
        if not count:
            continue
        if left is not None and count >= left:
            yield {name: column.first(left) for name, column in batch.items()}
            return
        yield batch
        left = None if left is None else left - count


def length_of(batch: Batch) -> int:
    """Return how many rows a batch has."""
    return len(next(iter(batch.values()), ()))


def batches_of(rows: Iterable[Any], names: Sequence[str]) -> Iterator[Batch]:
    """Iterate over rows that are objects as columns of these fields."""
    made = iter(rows)
    while True:
        some = list(islice(made, ROWS_AT_ONCE))
        if not some:
            return
        yield {name: Column(list(map(attrgetter(name), some))) for name in names}
