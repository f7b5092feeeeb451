"""What is told about a hash table that is not as it should be: one sentence with the numbers, and what to do next."""

from __future__ import annotations

from typing import Callable, Mapping, Optional, Tuple

from gdbext.analysis.tables.verdicts import BinRow, Figures, Verdict
from gdbext.structures.walk.model import Key
from gdbext.wording import count_text, grouped, share_text

_NEARLY_ALL = 0.75  # misplaced entries beyond this share speak against the shape


def explain(figures: Figures, verdict: Verdict, where: str, key: Optional[Key]) -> str:
    """Return the sentence for a table's verdict.

    :param where: the table in words, "table 3".
    :param key: how keys are told apart, or None.
    """
    return _SENTENCES[verdict](figures, where, key)


def advise(verdict: Verdict, figures: Figures) -> str:
    """Return what to look at next; "" where there is nothing to do."""
    if verdict is Verdict.EQUAL_HASH_FLOOD and figures.worst[0].hash_keys is None:
        return "Name where the key stands with --key, so that equal keys can be distinguished from different ones."
    if verdict is Verdict.MISPLACED and _contradicts_shape(figures):
        return "Check the shape first: how it finds the hash, and its bin_of (gx shapes show NAME)."
    return _ADVICE.get(verdict, "")


def explain_skew(figures: Figures, tables: int, total: int, where: str) -> str:
    """Return the sentence for a table that holds far more than its share.

    :param tables: how many share the work; ``total``: entries in all of them.
    """
    return (
        f"{where} holds {grouped(figures.walked)} of the {grouped(total)} entries in {tables} tables "
        f"({share_text(figures.walked, total)}, where {share_text(1, tables)} would be fair)"
    )


def _stale(figures: Figures, where: str, key: Optional[Key]) -> str:
    row = figures.worst[0]
    return (
        f"{_chain(figures, where)}, {_share_of(row)} with the one stored hash {_hash(row)} and "
        f"{grouped(row.hash_keys or 0)} different keys{_by(key)}{_remains(figures)}: the hash was not computed again "
        "after the key changed, or the keys were chosen to have it"
    )


def _flood(figures: Figures, where: str, key: Optional[Key]) -> str:
    row = figures.worst[0]
    keys = " (their keys are not known)" if row.hash_keys is None else f" and {_keys(row)}{_by(key)}"
    return (
        f"{_chain(figures, where)}, {_share_of(row)} with the one stored hash {_hash(row)}{keys}{_remains(figures)}"
    )


def _share_of(row: BinRow) -> str:
    return "all" if row.hash_entries == row.len else f"{grouped(row.hash_entries or 0)} of these"


def _keys(row: BinRow) -> str:
    return "one key" if row.hash_keys == 1 else f"{grouped(row.hash_keys or 0)} keys"


def _weak(figures: Figures, where: str, key: Optional[Key]) -> str:
    if figures.hot_hashes and 2 * figures.flooded >= figures.hot_entries:
        what = (
            f"{count_text(figures.hot_hashes, 'stored hash', 'stored hashes')} in {where} "
            f"{'is' if figures.hot_hashes == 1 else 'are'} shared by {grouped(figures.flooded)} of its "
            f"{grouped(figures.walked)} entries"
        )
    else:
        what = f"{grouped(figures.hot_entries)} of the {grouped(figures.walked)} entries in {where} lie in " + (
            f"{count_text(figures.hot_bins, 'bin')} of {grouped(figures.bins)}"
        )
    if figures.hot_hashes == 1 and figures.flooded == figures.walked:
        return f"{what}: the hash function is constant, or each entry kept the hash of one key"
    return f"{what}: the hash function makes too little of the keys"


def _hot(figures: Figures, where: str, key: Optional[Key]) -> str:
    row = figures.worst[0]
    hashes = "" if row.distinct_hashes is None else f", with {grouped(row.distinct_hashes)} different stored hashes"
    return (
        f"{_chain(figures, where)}{hashes}, where a fair hash gives no bin more than {figures.fair}: keys chosen for "
        "this bin (an attack), or a bin function that leaves out most of the hash"
    )


def _misplaced(figures: Figures, where: str, key: Optional[Key]) -> str:
    count = figures.misplaced or 0
    other = f", {grouped(figures.elsewhere)} of them to another table of the group" if figures.elsewhere else ""
    so = "nearly all, so it is rather the shape that does not fit" if _contradicts_shape(figures) else (
        "a look-up does not find them; their hash was changed while they were in the table"
    )  # fmt: skip
    return (
        f"the stored hash of {grouped(count)} of the {grouped(figures.walked)} entries in {where} belongs to another "
        f"bin{other}: {so}"
    )


def _small(figures: Figures, where: str, key: Optional[Key]) -> str:
    return (
        f"{where} has {figures.load:.1f} entries for each of its {count_text(figures.bins, 'bin')}, evenly spread: "
        f"the longest bin has {figures.longest}, and up to {figures.fair} would be fair"
    )


def _moving(figures: Figures, where: str, key: Optional[Key]) -> str:
    return f"{where} was stopped in the middle of a rehash: {figures.moving}"


def _chain(figures: Figures, where: str) -> str:
    row = figures.worst[0]
    return f"{grouped(row.len)} of the {grouped(figures.walked)} entries of {where} are in bin {row.bin}"


def _hash(row: BinRow) -> str:
    return "?" if row.hash is None else f"{row.hash:#x}"


def _by(key: Optional[Key]) -> str:
    return " (distinguished by their addresses)" if key is not None and key.compare == "pointer" else ""


def _remains(figures: Figures) -> str:
    rest = figures.rest
    if not rest.entries:
        return ""
    return f", while in the rest the longest bin has {rest.longest}"


def _contradicts_shape(figures: Figures) -> bool:
    return (figures.misplaced or 0) > _NEARLY_ALL * figures.walked


_SENTENCES: Mapping[Verdict, Callable[[Figures, str, Optional[Key]], str]] = {
    Verdict.STALE_HASH: _stale,
    Verdict.EQUAL_HASH_FLOOD: _flood,
    Verdict.WEAK_HASH: _weak,
    Verdict.HOT_BIN: _hot,
    Verdict.MISPLACED: _misplaced,
    Verdict.TABLE_TOO_SMALL: _small,
    Verdict.MID_REHASH: _moving,
}
_ADVICE: Mapping[Verdict, str] = {
    Verdict.STALE_HASH: "Compute the hash of one of these keys: if it is not the stored one, look at who stores the "
    "hash and who changes the key after that; if it is, the hash function does not withstand chosen keys.",
    Verdict.EQUAL_HASH_FLOOD: "The same key was inserted again and again: look at the look-up before the insert, and "
    "at what compares keys.",
    Verdict.WEAK_HASH: "Look at the hash function: which bits of the stored hashes differ at all, and how the bin is "
    "taken from them.",
    Verdict.HOT_BIN: "Look at the keys of this bin: from outside, give the hash function a secret seed; else look at "
    "how the bin is taken from the hash.",
    Verdict.MISPLACED: "Look at who stores the hash of an entry that is in the table already.",
    Verdict.SLAB_SKEW: "Look at the bits of the hash that choose the table.",
    Verdict.TABLE_TOO_SMALL: "Let it have more bins: look at its size in the configuration, and at what makes it grow.",
}


def capital(sentence: str) -> str:
    """Return a sentence as one stands alone."""
    return f"{sentence[:1].upper()}{sentence[1:]}."


def describe(
    figures: Figures, verdict: Verdict, where: str, key: Optional[Key], group: Optional[Tuple[int, int]] = None
) -> Tuple[str, str]:
    """Return sentence and advice for a finding.

    :param group: number of tables and of entries in all of them, for the skew.
    """
    if verdict is Verdict.SLAB_SKEW and group is not None:
        return explain_skew(figures, *group, where), _ADVICE[verdict]
    return explain(figures, verdict, where, key), advise(verdict, figures)
