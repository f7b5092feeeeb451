"""The chunk kernels against rows of chunks that the test lays out."""

from __future__ import annotations

import array

from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext.kernels import ChunkRules, find_chunk, walk_chunks, words_of
from tests.support.examples import examples

RULES = ChunkRules(8, 32, 16)
SIZES = st.lists(st.integers(2, 40).map(lambda units: 16 * units), min_size=1, max_size=60)


def lay_out(sizes, fill=0):
    """Return words with those chunks, all in use, and the positions where they begin."""
    words = array.array("Q", [fill] * (sum(sizes) // 8))
    positions, at = [], 0
    for size in sizes:
        words[at + 1] = size | 1
        positions.append(at)
        at += size // 8
    return memoryview(words), positions


@given(SIZES)
def test_a_sound_row_is_walked_to_its_end(sizes):
    words, positions = lay_out(sizes)
    found, end = walk_chunks(words, 0, len(words), RULES)
    assert found.tolist() == positions and end == len(words)


@given(SIZES, st.integers(1, 10))
def test_a_limited_walk_goes_on_where_it_stopped(sizes, limit):
    words, positions = lay_out(sizes)
    found, at = [], 0
    while at < len(words):
        part, at = walk_chunks(words, at, len(words), RULES, limit)
        assert len(part) <= limit
        found += part.tolist()
    assert found == positions


@given(SIZES, st.data())
def test_a_bad_size_ends_the_walk_there(sizes, data):
    words, positions = lay_out(sizes)
    broken = data.draw(st.sampled_from(positions))
    words[broken + 1] = data.draw(st.sampled_from([0, 1, 8, 17, 41, 1 << 40, (1 << 64) - 1]))
    found, end = walk_chunks(words, 0, len(words), RULES)
    assert found.tolist() == [at for at in positions if at < broken] and end == broken


@given(SIZES, st.data())
def test_the_chunk_after_a_bad_one_is_found(sizes, data):
    words, positions = lay_out(sizes)
    broken = data.draw(st.sampled_from(positions))
    words[broken + 1] = 0
    after = [at for at in positions if at > broken]
    stop = len(words)
    assert find_chunk(words, broken + 2, stop, {stop}, RULES) == (after[0] if after else None)


def test_a_size_that_leads_nowhere_is_not_believed():
    words, positions = lay_out([64] * 8)
    words[positions[0] + 1] = 0
    words[positions[0] + 3] = 32 | 1  # leads to position 6, whose size word is 0
    assert find_chunk(words, 2, len(words), {len(words)}, RULES) == positions[1]


def test_a_goal_within_reach_is_enough():
    words, positions = lay_out([64] * 8)
    words[positions[0] + 1] = 0
    words[positions[5] + 1] = 0
    stop = len(words)
    assert find_chunk(words, 2, stop, {positions[4]}, RULES, None) == positions[1]
    assert find_chunk(words, 2, stop, {stop}, RULES, None) == positions[6]


@settings(max_examples=examples(200))
@given(st.binary(max_size=2048), st.sampled_from([(8, 32, 16), (4, 16, 16), (4, 16, 8)]))
def test_any_bytes_end_in_bounds(data, rules):
    rules = ChunkRules(*rules)
    words = words_of(data[: len(data) // 8 * 8], rules.word, "little")
    found, end = walk_chunks(words, 0, len(words), rules)
    assert end <= len(words) and all(at < len(words) for at in found.tolist())
    again = find_chunk(words, 0, len(words), {len(words)}, rules)
    assert again is None or 0 <= again < len(words)


def test_words_of_a_foreign_byte_order():
    assert list(words_of(bytes(range(1, 9)), 8, "big")) == [0x0102030405060708]
    assert list(words_of(bytes(range(1, 9)), 4, "little")) == [0x04030201, 0x08070605]
