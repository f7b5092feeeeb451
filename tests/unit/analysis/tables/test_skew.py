"""Skew of hash tables, over hand-made walks: bins and hashes as numpy throws them."""

from dataclasses import replace

import numpy as np
import pytest

from gdbext.analysis.tables import distribution
from gdbext.analysis.tables.figures import Values, measure
from gdbext.analysis.tables.verdicts import Limits, Verdict, judge, limits
from gdbext.structures.walk.model import BinArray, BinsWalk, End, Key, Links, Node, Scalar, Table

BOUNDS = limits({})


class Source:
    """Entries whose hashes and keys are given."""

    def __init__(self, hashes=None, keys=None, compare="pointer"):
        self.hashes = hashes
        self.keys = keys
        self.key = None if keys is None else Key(Scalar(0, 8), compare)

    def find_hashes(self):
        return None if self.hashes is None else whole(self.hashes)

    def find_keys(self, rows):
        return None if self.keys is None else whole(np.asarray(self.keys, np.uint64)[rows])


def whole(values):
    values = np.asarray(values, np.uint64)
    return Values(values, np.ones(len(values), np.bool_))


def walk_of(owners, bins, complete=True):
    owners = np.asarray(owners, np.uint64)
    nodes = np.arange(len(owners), dtype=np.uint64) * np.uint64(64) + np.uint64(0x10000)
    lengths = np.bincount(owners.astype(np.int64), minlength=bins).astype(np.uint64)
    return BinsWalk(lengths, np.zeros(bins, np.uint8), nodes, owners, complete=complete)


def table_of(bins, entries=None, **more):
    array = BinArray(0x1000, bins, 8, bin_of=lambda hashes: hashes & np.uint64(bins - 1))
    return Table(0x800, Node(Links(0)), [array], entries=entries, **more)


def hashed(bins, hashes, keys=None, index=0, slab_of=None, owners=None, table=None, compare="pointer", **how):
    """Measure a table of a power of two of bins that holds entries with these hashes."""
    hashes = np.asarray(hashes, np.uint64)
    keys = np.arange(len(hashes)) if keys is None else keys
    owners = hashes & np.uint64(bins - 1) if owners is None else owners
    table = table or table_of(bins, len(hashes))
    return measure(index, table, walk_of(owners, bins, **how), Source(hashes, keys, compare), BOUNDS, slab_of)


def verdict(*measured, bounds=BOUNDS):
    return judge([each.figures for each in measured], bounds)


def random(count, seed=1, bits=32):
    return np.random.default_rng(seed).integers(0, 1 << bits, count, np.uint64)


# ---- what chance gives ----


@pytest.mark.parametrize(
    "bins, load, most",
    [
        # By hand: P(X > 8) = 3.4e-9 and P(X > 7) = 6.2e-8 at a mean of 0.5; P(X > 9) = 1.1e-7, P(X > 8) = 1.1e-6 at 1.
        (1 << 20, 0.5, 8),
        (50_000, 1.0, 9),
        (100_000, 1.0, 10),
        (1, 0.1, 1),
        (1, 0.001, 0),
        (1024, 0.0, 0),
        (0, 0.0, 0),
    ],
)
def test_the_fair_maximum(bins, load, most):
    assert distribution.fair_max(bins, load) == most


def poisson_tail(load, most):
    """P(X > most), summed term by term from the definition."""
    term, below = np.exp(-load), 0.0
    for k in range(most + 1):
        below += term
        term *= load / (k + 1)
    return 1 - below


@pytest.mark.parametrize("bins, load", [(1000, 0.7), (64, 3.0), (4096, 9.5), (300, 40.0)])
def test_the_fair_maximum_is_the_smallest(bins, load):
    most = distribution.fair_max(bins, load)
    assert bins * poisson_tail(load, most) < 0.01 <= bins * poisson_tail(load, most - 1)


def test_the_fair_maximum_of_one_full_bin():
    assert 1000 + 2 * 1000**0.5 < distribution.fair_max(1, 1000) < 1000 + 3 * 1000**0.5
    assert distribution.fair_max(1, 1_000_000) < 1_003_000


def test_histograms_percentiles_and_buckets():
    counts = distribution.histogram(np.array([0, 0, 3, 1, 1, 70], np.uint64))
    assert counts == [(0, 2), (1, 2), (3, 1), (70, 1)]
    assert distribution.percentile(counts, 0.5) == 1
    assert distribution.percentile(counts, 0.75) == 3
    assert distribution.percentile(counts, 0.99) == 70
    assert distribution.percentile(counts, 0.3, 0) == 0
    assert distribution.percentile([], 0.5) == 0
    assert distribution.buckets(counts) == [(0, 0, 2, 0), (1, 1, 2, 2), (3, 4, 1, 3), (65, 128, 1, 70)]
    assert distribution.buckets([(2, 1), (4, 2), (5, 3), (8, 1), (9, 1)]) == [
        (2, 2, 1, 2), (3, 4, 2, 8), (5, 8, 4, 23), (9, 16, 1, 9),
    ]  # fmt: skip
    assert distribution.merged([counts, [(1, 5), (2, 1)]]) == [(0, 2), (1, 7), (2, 1), (3, 1), (70, 1)]
    huge = distribution.histogram(np.array([1 << 40, 2], np.uint64))
    assert huge == [(2, 1), (1 << 40, 1)]
    assert distribution.histogram(np.empty(0, np.uint64)) == []


def test_shares_that_chance_gives():
    generator = np.random.default_rng(7)
    for slabs in (2, 4, 16, 64):
        for entries in (1000, 20_000, 1_000_000):
            counts = generator.multinomial(entries, [1 / slabs] * slabs)
            assert not distribution.improbable(counts.tolist()), (slabs, entries)
    assert distribution.improbable([2000, 1000])
    assert not distribution.improbable([5, 0, 0, 0])
    assert not distribution.improbable([7]) and not distribution.improbable([]) and not distribution.improbable([0, 0])


# ---- healthy tables ----


def test_a_thousand_fair_tables_are_ok():
    generator = np.random.default_rng(20240501)
    for trial in range(1000):
        bins = 1 << int(generator.integers(0, 15))
        load = float(generator.choice([0.01, 0.3, 0.7, 1, 1.5, 3, 6, 7.5]))
        hashes = generator.integers(0, 1 << 32, max(int(bins * load), 1), np.uint64)
        measured = hashed(bins, hashes, index=trial)
        assert verdict(measured).overall is Verdict.OK, (trial, bins, load)


def test_fair_groups_are_ok():
    generator = np.random.default_rng(3)
    for _ in range(60):
        slabs = 1 << int(generator.integers(1, 5))
        hashes = generator.integers(0, 1 << 32, int(generator.integers(1, 30_000)), np.uint64)
        assert verdict(*grouped(hashes, slabs, 4096)).overall is Verdict.OK


def grouped(hashes, slabs, bins, keys=None):
    """Measure the tables of a group that takes the slab from the high bits of a 32-bit hash."""
    keys = np.arange(len(hashes)) if keys is None else np.asarray(keys)
    shift = np.uint64(32 - slabs.bit_length() + 1)

    def slab_of(stored):
        return stored >> shift

    chosen = [slab_of(hashes) == np.uint64(slab) for slab in range(slabs)]
    return [hashed(bins, hashes[rows], keys[rows], at, slab_of) for at, rows in enumerate(chosen)]


def test_a_million_entries_share_hashes_by_chance():
    hashes = random(1_000_000)
    measured = hashed(1 << 20, hashes)
    assert len(hashes) - measured.distinct_hashes > 60  # 116 pairs by the birthday bound
    assert verdict(measured).overall is Verdict.OK


def test_pairs_of_equal_hashes_in_a_short_hash():
    measured = hashed(1 << 16, random(200_000, bits=18))
    assert verdict(measured).overall is Verdict.OK


@pytest.mark.parametrize("entries", [0, 1, 20])
def test_nothing_is_told_of_few_entries(entries):
    measured = hashed(1024, [0x77] * entries)
    assert verdict(measured).overall is Verdict.OK
    assert measured.figures.longest == entries


def test_a_walk_that_was_cut_short_is_not_called_sound():
    assert verdict(hashed(1024, random(500), complete=False)).overall is None
    assert verdict(hashed(1024, [7] * 500, complete=False)).overall is Verdict.WEAK_HASH


def test_a_walk_that_was_bounded_is_not_called_sound():
    walk = walk_of(random(500) & np.uint64(1023), 1024)
    walk.reasons[7] = End.LIMIT
    assert verdict(measure(0, table_of(1024), walk, Source(), BOUNDS)).overall is None


def test_a_table_without_entries_or_bins():
    empty = measure(0, table_of(8), walk_of([], 8), Source(np.empty(0), []), BOUNDS)
    assert verdict(empty).overall is Verdict.OK
    assert (empty.figures.longest_bin, empty.figures.worst, empty.distinct_hashes) == (None, [], 0)
    none = measure(0, table_of(1)._replace(arrays=[]), walk_of([], 0), Source(), BOUNDS)
    assert verdict(none).overall is Verdict.OK


# ---- each defect ----


def stale(entries=20_000, share=0.8, **how):
    hashes = random(entries, 5)
    hashes[: int(entries * share)] = 0x15A5A
    return hashed(32768, hashes, **how)


def test_one_stored_hash_for_different_keys():
    measured = stale()
    row = measured.figures.worst[0]
    assert verdict(measured).overall is Verdict.STALE_HASH
    assert (row.bin, row.hash) == (0x15A5A & 32767, 0x15A5A)
    assert row.len >= 16_000 and row.distinct_keys == row.len and row.hash_entries == row.hash_keys == 16_000
    assert measured.figures.rest.entries == 4000 and measured.figures.rest.longest < 20


def test_nothing_but_one_stored_hash_is_a_constant_function():
    assert verdict(hashed(32768, [7] * 20_000)).overall is Verdict.WEAK_HASH
    others = [hashed(1024, [], index=at) for at in (1, 2, 3)]
    judged = verdict(hashed(32768, [7] * 20_000), *others)
    assert list(judged.verdicts) == [Verdict.WEAK_HASH, Verdict.OK, Verdict.OK, Verdict.OK]
    assert judged.skewed is None


@pytest.mark.parametrize("others, told", [(1, Verdict.WEAK_HASH), (2, Verdict.STALE_HASH), (30, Verdict.STALE_HASH)])
def test_a_stale_hash_needs_others_that_spread(others, told):
    assert verdict(hashed(32768, [*[7] * 20_000, *random(others)])).overall is told
    elsewhere = hashed(1024, random(others), index=1)
    assert verdict(hashed(32768, [7] * 20_000), elsewhere).overall is told
    assert verdict(hashed(32768, [*[7] * 20_000, *[8] * others])).overall is Verdict.WEAK_HASH


def test_several_stale_hashes_beside_a_fair_rest():
    hashes = random(20_000, 5)
    for at in range(30):
        hashes[at * 100 : at * 100 + 100] = hashes[at * 100]
    assert verdict(hashed(32768, hashes)).overall is Verdict.STALE_HASH


def test_one_stored_hash_for_equal_keys():
    keys = np.arange(20_000)
    keys[:16_000] = 5
    assert verdict(stale(keys=keys)).overall is Verdict.EQUAL_HASH_FLOOD
    keys[:16_000] = np.arange(16_000) % 100
    assert verdict(stale(keys=keys)).overall is Verdict.EQUAL_HASH_FLOOD


def test_one_stored_hash_for_unknown_keys():
    hashes = np.full(5000, 9, np.uint64)
    measured = measure(0, table_of(8192), walk_of(hashes, 8192), Source(hashes), BOUNDS)
    assert verdict(measured).overall is Verdict.EQUAL_HASH_FLOOD
    assert measured.figures.worst[0].distinct_keys is None


@pytest.mark.parametrize("values", [5, 16, 256, 1000])
def test_few_hashes_for_all_keys(values):
    hashes = random(values, 8)[random(100_000, 9) % np.uint64(values)]
    assert verdict(hashed(1 << 17, hashes)).overall is Verdict.WEAK_HASH


@pytest.mark.parametrize("slabs", [1, 4])
def test_few_hashes_over_a_group(slabs):
    hashes = random(16, 8)[random(20_000, 9) % np.uint64(16)]
    judged = verdict(*grouped(hashes, max(slabs, 2), 8192))
    assert judged.overall is Verdict.WEAK_HASH
    assert judged.skewed is None


def test_many_hashes_in_few_bins():
    hashes = random(20_000, 2) << np.uint64(12) & np.uint64(0xFFFFFFFF) | np.uint64(0x5A5)
    measured = hashed(32768, hashes)
    assert verdict(measured).overall is Verdict.WEAK_HASH
    assert verdict(*grouped(hashes, 4, 8192)).overall is Verdict.WEAK_HASH


def test_a_hash_that_uses_every_sixteenth_bin():
    hashes = random(800_000, 2) << np.uint64(4)
    assert verdict(hashed(1 << 20, hashes)).overall is Verdict.WEAK_HASH


def test_hashes_chosen_for_one_bin():
    hashes = random(20_000, 3)
    hashes[:2500] = np.arange(2500, dtype=np.uint64) << np.uint64(17) | np.uint64(0x15A5A)
    measured = hashed(32768, hashes)
    assert verdict(measured).overall is Verdict.HOT_BIN
    assert measured.figures.worst[0].distinct_hashes >= 2500
    assert verdict(*grouped(hashes, 4, 8192)).overall is Verdict.HOT_BIN


def test_an_attack_on_several_bins_beside_a_fair_rest():
    hashes = random(50_000, 3)
    hashes[:10_000] = (np.arange(10_000, dtype=np.uint64) << np.uint64(17)) | (random(10_000, 4, 5))
    assert verdict(hashed(65536, hashes)).overall is Verdict.HOT_BIN


def test_without_stored_hashes_lengths_alone_decide():
    owners = np.concatenate([random(10_000) & np.uint64(16383), np.full(500, 77, np.uint64)])
    measured = measure(0, table_of(16384), walk_of(owners, 16384), Source(), BOUNDS)
    assert verdict(measured).overall is Verdict.HOT_BIN
    assert measured.distinct_hashes is None and measured.figures.misplaced is None


def test_the_floor_and_the_factor_are_settings():
    hashes = np.concatenate([random(20_000), np.full(30, 7, np.uint64)])
    measured = hashed(32768, hashes)
    assert verdict(measured).overall is Verdict.STALE_HASH
    wide = limits({"hot-bin": 50})
    calm = measure(0, table_of(32768), walk_of(hashes & np.uint64(32767), 32768), Source(hashes, hashes), wide)
    assert judge([calm.figures], wide).overall is Verdict.OK
    patient = limits({"hot-bin-factor": 5})
    calm = measure(0, table_of(32768), walk_of(hashes & np.uint64(32767), 32768), Source(hashes, hashes), patient)
    assert judge([calm.figures], patient).overall is Verdict.OK


def test_misplaced_entries():
    hashes = random(20_000)
    owners = hashes & np.uint64(32767)
    stored = hashes.copy()
    stored[::100] ^= np.uint64(0x2B)
    measured = hashed(32768, stored, owners=owners)
    assert measured.figures.misplaced == 200
    assert verdict(measured).overall is Verdict.MISPLACED


def test_entries_of_another_table():
    hashes = random(4000)
    measured = hashed(4096, hashes, index=1, slab_of=lambda stored: stored >> np.uint64(31))
    low = int((hashes < 1 << 31).sum())
    assert (measured.figures.misplaced, measured.figures.elsewhere) == (low, low)


def test_hashes_that_cannot_be_read_are_not_misplaced():
    class Partly(Source):
        def find_hashes(self):
            known = np.arange(1000) % 2 == 0
            return Values(np.where(known, self.hashes, 0), known)

    hashes = random(1000)
    measured = measure(0, table_of(1024), walk_of(hashes & np.uint64(1023), 1024), Partly(hashes), BOUNDS)
    assert measured.figures.misplaced == 0 and measured.distinct_hashes == 500


def test_a_table_that_is_too_small():
    measured = hashed(64, random(5000))
    assert verdict(measured).overall is Verdict.TABLE_TOO_SMALL
    assert verdict(hashed(1, random(500))).overall is Verdict.TABLE_TOO_SMALL


def test_a_rehash_is_information():
    hashes = random(8192)
    low = (hashes & np.uint64(4095)) < np.uint64(2048)
    owners = np.where(low, (hashes & np.uint64(8191)) + np.uint64(4096), hashes & np.uint64(4095))
    arrays = [replace(table_of(bins).arrays[0], address=bins) for bins in (4096, 8192)]
    table = table_of(4096)._replace(arrays=arrays, rehashing=True)
    measured = measure(0, table, walk_of(owners, 12288), Source(hashes, hashes), BOUNDS)
    judged = verdict(measured)
    assert judged.overall is Verdict.MID_REHASH and not judged.overall.is_finding
    assert measured.figures.misplaced == 0 and measured.figures.effective == 4096


def test_a_table_stopped_while_its_bins_move():
    hashes = random(5000)
    kept = hashes[(hashes & np.uint64(8191)) >= np.uint64(4096)]
    measured = hashed(8192, kept, table=table_of(8192, 5000))
    assert verdict(measured).overall is Verdict.MID_REHASH
    assert f"{5000 - len(kept):,}".replace(",", " ") in measured.figures.moving
    few = hashed(8192, hashes[:-7], table=table_of(8192, 5000))
    assert verdict(few).overall is Verdict.OK


def skewed_hashes(entries=20_000):
    hashes = random(entries)
    rows = np.arange(entries) % 10 != 0
    hashes[rows] &= np.uint64(0x3FFFFFFF)
    return hashes


def test_one_table_of_a_group_with_most_entries():
    judged = verdict(*grouped(skewed_hashes(), 4, 32768))
    assert judged.overall is Verdict.SLAB_SKEW and judged.skewed == 0
    assert set(judged.verdicts) == {Verdict.OK}


def test_shares_are_not_judged_below_the_floor_or_the_factor():
    assert verdict(*grouped(skewed_hashes(900), 4, 1024)).overall is Verdict.OK
    hashes = random(40_000)
    hashes[:8000] &= np.uint64(0x3FFFFFFF)
    judged = verdict(*grouped(hashes, 4, 65536))  # 40 % in one of four: improbable, but not twice its share
    assert judged.overall is Verdict.OK


def test_a_flood_in_one_table_is_no_slab_skew():
    hashes = random(20_000, 5)
    hashes[:16_000] = 0x15A5A
    judged = verdict(*grouped(hashes, 4, 32768))
    assert judged.overall is Verdict.STALE_HASH and judged.skewed is None
    assert judged.verdicts.count(Verdict.OK) == 3


def test_the_longest_bins():
    owners = [3] * 9 + [1] * 4 + [7] * 4 + [5] * 4 + [2] * 4 + [6] * 4 + [0] * 2
    measured = measure(0, table_of(8), walk_of(owners, 8), Source(), BOUNDS)
    assert [(row.bin, row.len) for row in measured.figures.worst] == [(3, 9), (1, 4), (2, 4), (5, 4), (6, 4)]
    assert (measured.figures.longest, measured.figures.longest_bin) == (9, 3)
    assert measured.nonempty == 7


def test_the_reasons_of_ends_do_not_matter():
    walk = walk_of([1] * 30, 8)
    walk.reasons[1] = End.CYCLE
    assert measure(0, table_of(8), walk, Source(), BOUNDS).figures.longest == 30


def test_defaults_of_the_settings():
    assert limits({}) == Limits(20, 2, 8, 2, 1000)
    assert limits({"hot-bin": 5, "safe": 1}).bin == 5
