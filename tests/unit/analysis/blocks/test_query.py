"""The query language: its grammar, its errors, and what a query is true of, held to an evaluator row by row."""

import re
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext.analysis.blocks.listing import Filters, Manner, listing
from gdbext.analysis.blocks.query import (
    DEEPEST,
    FIELDS,
    And,
    Compare,
    FieldKind,
    Not,
    Or,
    each_compare,
    parse,
)
from gdbext.analysis.blocks.querycolumns import HeapColumns, Needs, find_matching, needs_of_query
from gdbext.errors import UsageError
from gdbext.heap.model import CACHED_STATES, FREE_STATES, USED_STATES, State
from tests.support.examples import examples
from tests.unit.analysis.heaps import NO_ARENA, THREADS, TYPES, heap_of, live_of

# -- grammar


def eq(field, *values):
    return Compare(field, "==", values)


@pytest.mark.parametrize(
    "text, tree",
    [
        ("size >= 4096", Compare("size", ">=", (4096,))),
        ("4096 <= size", Compare("size", ">=", (4096,))),
        ("0x10 == address", eq("address", 16)),
        ("4K <= size < 1M", And((Compare("size", ">=", (4096,)), Compare("size", "<", (1 << 20,))))),
        ("1k < size <= 2KiB", And((Compare("size", ">", (1024,)), Compare("size", "<=", (2048,))))),
        ("size in (1, 2G,3)", eq("size", 1, 2 << 30, 3)),
        ("size not in (1)", Not(eq("size", 1))),
        ("size != 16B", Not(eq("size", 16))),
        ('state == "leaked"', eq("state", "leaked")),
        ("state == Possibly-Leaked", eq("state", "possibly leaked")),
        ("state == 'in_use' or state==free", Or((eq("state", "in use"), eq("state", "free")))),
        ("state == possibly leaked and size == 1", And((eq("state", "possibly leaked"), eq("size", 1)))),
        ("state in (in use, Possibly Leaked, free)", eq("state", "in use", "possibly leaked", "free")),
        ("reach in (reached, 'possibly leaked')", eq("reach", "reached", "possibly leaked")),
        ("type ~ 'Sess.*n'", Compare("type", "~", ("Sess.*n",))),
        ('type !~ "x"', Not(Compare("type", "~", ("x",)))),
        ("type == 'it\\'s \"x\"'", eq("type", "it's \"x\"")),
        ("type == Session and type == 5", And((eq("type", "Session"), eq("type", "5")))),
        ("thread == 3 or thread == worker", Or((eq("thread", 3), eq("thread", "worker")))),
        ("arena == none", eq("arena", "none")),
        ("arena >= 2", Compare("arena", ">=", (2,))),
        ("confidence >= medium", Compare("confidence", ">=", ("medium",))),
        ("not not size == 1", Not(Not(eq("size", 1)))),
        ("NOT size == 1 AND refs == 0", And((Not(eq("size", 1)), eq("refs", 0)))),
        ("size==1 or size==2 and refs==3", Or((eq("size", 1), And((eq("size", 2), eq("refs", 3)))))),
        ("(size==1 or size==2) and refs==3", And((Or((eq("size", 1), eq("size", 2))), eq("refs", 3)))),
        ("\tsize\n==\n1 ", eq("size", 1)),
        ("address < 0xffffffffffffffff", Compare("address", "<", (2**64 - 1,))),
    ],
)
def test_what_a_query_means(text, tree):
    assert parse(text) == tree


FIELDS_HINT = "the fields are size, address, state, reach, arena, thread, allocator, type, confidence, refs"


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "at character 1: expected a field, but it ends there"),
        ("size >=", "at character 8: expected a number after >=, but it ends there"),
        ("size >= x", "at character 9: expected a number after >=, not 'x'"),
        ("size >= and", "at character 9: expected a number after >=, not 'and'"),
        ("size >= 'x'", "at character 9: expected a number after >=, not 'x'"),
        ("size >= refs", "at character 9: expected a number after >=, not a field"),
        ("type ~ size", "at character 8: expected a regular expression after ~, not a field"),
        ("size", "at character 5: expected a comparison after size, but it ends there"),
        ("size 5", "at character 6: expected a comparison after size, not '5'"),
        ("5", "at character 2: expected a comparison after '5', but it ends there"),
        ("5 <", "at character 4: expected a field after <, but it ends there"),
        ("1 < 2", "at character 1: no field on either side of <"),
        ("1 < size < 2 < 3", "at character 12: no field on either side of <"),
        ("sise >= 4", f"at character 1: no field 'sise'; did you mean size? {FIELDS_HINT}"),
        ("4 <= sise", f"at character 6: no field 'sise'; did you mean size? {FIELDS_HINT}"),
        ("qqq", f"at character 1: no field 'qqq'; {FIELDS_HINT}"),
        ("qqq in (1)", f"at character 1: no field 'qqq'; {FIELDS_HINT}"),
        ("5 in (1)", "at character 1: expected a field before in, not '5'"),
        ("size = 4", "at character 6: = is no sign here; write =="),
        ("size > 1 && refs == 0", "at character 10: && is no sign here; write and"),
        ("size > 1 || refs == 0", "at character 10: || is no sign here; write or"),
        ("! size > 1", "at character 1: ! is no sign here; write not"),
        ("size > 1 refs == 0", "at character 10: expected and, or, or the end, not 'refs'"),
        ("size > 1)", "at character 9: expected and, or, or the end, not ')'"),
        ("(size > 1", "at character 10: expected ')' for the ( at character 1, but it ends there"),
        ("size in 4", "at character 9: expected '(' after in, not '4'"),
        ("size not 4", "at character 10: expected 'in' after not, not '4'"),
        ("size in ()", "at character 10: expected a number in the list, not ')'"),
        ("size in (1 2)", "at character 12: expected ')' or , after a value of in, not '2'"),
        ("size in (1,", "at character 12: expected a number in the list, but it ends there"),
        ("size in (1, x)", "at character 13: expected a number after in, not 'x'"),
        ("12ab < size", "at character 1: '12ab' is not a number; write 4096, 0x1000, 4K, 16M or 1G"),
        ("size < 1.5", "at character 8: '1.5' is not a number; write 4096, 0x1000, 4K, 16M or 1G"),
        ("size < 0x", "at character 8: '0x' is not a number; write 4096, 0x1000, 4K, 16M or 1G"),
        ("size < 0x10000000000000000", "at character 8: '0x10000000000000000' is more than any target has"),
        ("size < " + "9" * 9999, f"at character 8: '{'9' * 40}…' is more than any target has"),
        ("size < -1", "at character 8: '-' cannot be part of a query; put texts that are not one word in quotes"),
        ("type == std::string", "at character 12: ':' cannot be part of a query; put texts that are not one word"),
        ("type == 'abc", "at character 9: the quote ' is not closed"),
        ("size ~ 'a'", "at character 6: size cannot be compared by ~; it takes ==, !=, <, <=, >, >= and in"),
        ("type > a", "at character 6: type cannot be compared by >; it takes ==, !=, ~, !~ and in"),
        ("'x' ~ type", "at character 5: ~ has the field on its left, and a regular expression on its right"),
        ("type ~ '['", "at character 8: '[' is no regular expression: unterminated character set at position 0"),
        ("type ~ 5", "at character 8: expected a regular expression in quotes after ~, not '5'"),
        ("state == maybe lost", "at character 10: expected a state after ==, not 'maybe'; the states are in use"),
        ("type == in use", "at character 9: expected a text after ==, not 'in'"),
        ("in use == state", "at character 1: expected a field, not 'in'"),
        ("state == lost", "at character 10: expected a state after ==, not 'lost'; the states are in use, mmapped,"),
        ("reach == free", "at character 10: expected one of reached, possibly leaked, leaked after ==, not 'free'"),
        ("confidence > x", "at character 14: expected one of none, low, medium, high after >, not 'x'"),
        ("confidence > 1", "at character 14: expected one of none, low, medium, high after >, not '1'"),
        ("arena == x", "at character 10: expected a number or none after ==, not 'x'"),
        ("thread < 3", "at character 8: thread cannot be compared by <; it takes ==, !=, ~, !~ and in"),
        ("(" * 99, f"at character {DEEPEST + 1}: more than {DEEPEST} brackets and nots within each other"),
        ("not " * 9999, f"at character {4 * DEEPEST + 1}: more than {DEEPEST} brackets and nots within each other"),
    ],
)
def test_what_cannot_be_understood(text, message):
    with pytest.raises(UsageError, match=f"^{re.escape(message)}"):
        parse(text)


@given(st.text(max_size=30) | st.lists(st.sampled_from(
    [*FIELDS, "and", "or", "not", "in", "(", ")", ",", "==", "~", "<", "5", "4K", "'x'", "leaked", "none"]
), max_size=12).map(" ".join))  # fmt: skip
def test_any_text_is_a_query_or_one_line_with_a_place(text):
    try:
        parse(text)
    except UsageError as error:
        place = int(re.fullmatch(r"at character (\d+): .+", error.message)[1])
        assert 1 <= place <= len(text) + 1


# -- trees, and their texts

NUMBERS = st.sampled_from([0, 1, 2, 3, 16, 48, 64, 0x1000, 0x1040, 2**32, 2**64 - 1])
STATES = [state.label for state in State] + ["used", "cached", "free", "reached", "possibly leaked", "leaked"]
PATTERNS = st.sampled_from(["", "e", "^S", "leak", "free|tc", "worker", "nothing", "."])
ORDERS = ["<", "<=", ">", ">="]


def compares(field, signs, values):
    equal = st.builds(lambda chosen: Compare(field, "==", tuple(chosen)), st.lists(values, min_size=1, max_size=3))
    return equal | st.builds(lambda sign, value: Compare(field, sign, (value,)), st.sampled_from(signs), values)


def searches(field, values):
    equal = st.builds(lambda chosen: Compare(field, "==", tuple(chosen)), st.lists(values, min_size=1, max_size=3))
    return equal | st.builds(lambda pattern: Compare(field, "~", (pattern,)), PATTERNS)


COMPARES = st.one_of(
    *(compares(field, ORDERS, NUMBERS) for field in ("size", "address", "refs")),
    compares("arena", ORDERS, st.sampled_from([0, 1, 3, 7, 0xA000, 0xA200, 0xA300])),
    st.just(eq("arena", "none")),
    compares("confidence", ORDERS, st.sampled_from(["none", "low", "medium", "high"])),
    searches("state", st.sampled_from(STATES)),
    searches("reach", st.sampled_from(STATES[-3:])),
    searches("type", st.sampled_from([*TYPES, "nothing"])),
    searches("allocator", st.sampled_from(["glibc", "jemalloc"])),
    searches("thread", st.sampled_from([1, 2, 3, 9, "main", "worker-2", "x"])),
)
TREES = st.recursive(
    COMPARES,
    lambda inner: st.builds(Not, inner)
    | st.builds(lambda terms: And(tuple(terms)), st.lists(inner, min_size=2, max_size=3))
    | st.builds(lambda terms: Or(tuple(terms)), st.lists(inner, min_size=2, max_size=3)),
    max_leaves=6,
)


def written(node):
    """Return a tree as text, bracketed throughout."""
    if isinstance(node, Compare):
        if len(node.values) > 1:
            return f"{node.field} in ({', '.join(map(value_text, node.values))})"
        return f"{node.field} {node.sign} {value_text(node.values[0])}"
    if isinstance(node, Not):
        return f"not ({written(node.term)})"
    return f"({(' and ' if isinstance(node, And) else ' or ').join(map(written, node.terms))})"


def value_text(value):
    return f"{value:#x}" if isinstance(value, int) else f'"{value}"'


@given(TREES)
def test_a_tree_that_is_written_is_read_again(tree):
    assert parse(written(tree)) == tree


# -- what it is true of

BLOCKS = st.lists(
    st.tuples(
        st.sampled_from([16, 48, 64, 2**33]), st.sampled_from(list(State)), st.sampled_from([0, 1, 2, 3, NO_ARENA])
    ),
    max_size=12,
)


@st.composite
def worlds(draw):
    """Draw two heaps with what is known of their live blocks."""
    heaps = []
    for number, allocator in enumerate(("glibc", "jemalloc")):
        rows = [((0x1000 << 40 * number) + (at << 36), *row) for at, row in enumerate(draw(BLOCKS))]
        heaps.append(heap_of(rows, allocator))
    live = sum(int(heap.blocks.having(USED_STATES).sum()) for heap in heaps)
    few = st.lists(st.integers(0, 2), max_size=live)
    pairs = [pair for pair in product(range(live), repeat=2) if pair[0] != pair[1]]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=9)) if pairs else []
    roots = draw(st.lists(st.integers(0, live - 1), max_size=3)) if live else []
    codes = draw(st.lists(st.integers(0, 3), max_size=live))
    levels = draw(st.lists(st.integers(0, 3), max_size=live))
    return heaps, live_of(heaps, draw(few), edges, roots, codes, levels), edges


def facts(world):
    """Return each block of all heaps as a dictionary; what is not known is None."""
    heaps, live, edges = world
    row, told = 0, []
    for heap in heaps:
        columns = zip(*(getattr(heap.blocks, name).tolist() for name in ("address", "size", "state", "owner")))
        for address, size, state, owner in columns:
            one = {"address": address, "size": size, "state": State(state), "allocator": heap.allocator}
            one["arena"] = None if owner == NO_ARENA else owner
            one["threads"] = () if owner == NO_ARENA else THREADS[owner]
            one.update(reach=None, type=None, confidence=None, refs=None)
            if state in USED_STATES:
                one["reach"] = ("leaked", "possibly leaked", "reached")[live.reach.states[row]]
                one["type"] = TYPES[live.types.code[row]]
                one["confidence"] = int(live.types.confidence[row])
                one["refs"] = sum(goal == row for _, goal in edges)
                one["refs"] += sum(word[1] == row for word in live.reach.marked.hits.words)
                row += 1
            told.append(one)
    return told


def holds(node, one):
    """Return whether a tree is true of a block: True, False, or None where that is not known."""
    if isinstance(node, Compare):
        return compare_holds(node, one)
    if isinstance(node, Not):
        term = holds(node.term, one)
        return None if term is None else not term
    terms = [holds(term, one) for term in node.terms]
    decisive = not isinstance(node, And)
    return decisive if decisive in terms else None if None in terms else not decisive


def compare_holds(node, one):
    if node.field == "state":
        return state_holds(node, one)
    if node.field == "thread":
        return thread_holds(node, one["threads"])
    if node.field == "arena":
        return arena_holds(node, one["arena"])
    if one[node.field] is None:
        return None
    return ordered(node.sign, one[node.field], [level(value) for value in node.values])


def level(value):
    return {"none": 0, "low": 1, "medium": 2, "high": 3}.get(value, value)


def ordered(sign, value, wanted):
    if sign == "==":
        return value in wanted
    if sign == "~":
        return re.search(wanted[0], value) is not None
    return {"<": value < wanted[0], "<=": value <= wanted[0], ">": value > wanted[0], ">=": value >= wanted[0]}[sign]


def state_holds(node, one):
    names = {one["state"].label, one["reach"]} - {None}
    if node.sign == "~":
        return any(re.search(node.values[0], name) for name in names)
    groups = {"used": USED_STATES, "cached": CACHED_STATES, "free": FREE_STATES}
    names -= set(groups)
    return bool(names & set(node.values)) or any(one["state"] in groups.get(value, ()) for value in node.values)


def thread_holds(node, threads):
    if threads is None:
        return None
    if node.sign == "~":
        return any(re.search(node.values[0], thread.name) for thread in threads)
    return any(value in (thread.number, thread.name) for thread in threads for value in node.values)


def arena_holds(node, arena):
    if arena is None:
        return "none" in node.values if node.sign == "==" else None
    wanted = [value for value in node.values if value != "none"]
    return any(ordered(node.sign, arena if value < 4096 else 0xA000 + 0x100 * arena, [value]) for value in wanted)


def listed(world, tree, **manner):
    heaps, live, _ = world
    report = listing(heaps, Filters(where=tree), Manner(columns=["address"], **manner), live)
    return [row.address for row in report.data.blocks]


@settings(max_examples=examples(400))
@given(worlds(), TREES)
def test_a_query_is_true_of_what_an_evaluator_row_by_row_says(world, tree):
    expected = [one["address"] for one in facts(world) if holds(tree, one) is True]
    assert listed(world, tree) == expected


@given(worlds(), TREES, TREES)
def test_the_algebra_of_queries(world, one, two):
    here = set(listed(world, one))
    assert listed(world, Not(Not(one))) == listed(world, one)
    assert listed(world, And((one, two))) == listed(world, And((two, one)))
    assert set(listed(world, And((one, two)))) == here & set(listed(world, two))
    assert set(listed(world, Or((one, two)))) == here | set(listed(world, two))
    assert listed(world, Not(And((one, two)))) == listed(world, Or((Not(one), Not(two))))
    assert listed(world, Not(Or((one, two)))) == listed(world, And((Not(one), Not(two))))
    assert not here & set(listed(world, Not(one)))


@given(worlds(), TREES)
def test_options_and_queries_are_filters_that_both_hold(world, tree):
    heaps, live, _ = world
    both = Filters(states=frozenset(USED_STATES), min_size=48, where=tree)
    found = [row.address for row in listing(heaps, both, Manner(), live).data.blocks]
    wide = And((tree, eq("state", "used"), Compare("size", ">=", (48,))))
    assert found == listed(world, wide)


SORTS = st.lists(st.tuples(st.sampled_from(list(FIELDS)), st.booleans()), min_size=1, max_size=3)


@given(worlds(), TREES, SORTS)
def test_sorting_permutes(world, tree, sort):
    assert sorted(listed(world, tree, sort=sort)) == sorted(listed(world, tree))


@given(worlds(), SORTS)
def test_sorted_by_values_and_what_is_not_known_comes_last(world, sort):
    known = {one["address"]: sort_values(one) for one in facts(world)}
    rows = [known[address] for address in listed(world, eq("size", 16, 48, 64, 2**33), sort=sort)]
    for above, below in zip(rows, rows[1:]):
        for field, descending in sort:
            one, two = above[field], below[field]
            if one == two:
                continue
            assert two is None or (one is not None and (one > two if descending else one < two))
            break


def sort_values(one):
    numbers = [thread.number for thread in one["threads"] or ()]
    reach = one["reach"] and ("leaked", "possibly leaked", "reached").index(one["reach"])
    return {**one, "state": one["state"].label, "thread": min(numbers, default=None), "reach": reach}


# -- what is needed


@pytest.mark.parametrize(
    "text, needs",
    [
        ("size > 1 and state == free and arena == 1 and thread ~ 'x'", Needs()),
        ("state ~ 'tcache'", Needs()),
        ("state ~ 'leak'", Needs(reach=True)),
        ("size > 1 or not (state in (free, leaked))", Needs(reach=True)),
        ("reach == reached", Needs(reach=True)),
        ("type == x", Needs(reach=True, types=True)),
        ("confidence > low", Needs(reach=True, types=True)),
        ("refs == 0", Needs(reach=True, refs=True)),
    ],
)
def test_only_what_is_asked_for_is_worked_out(text, needs):
    assert needs_of_query(parse(text)) == needs


def test_nothing_is_needed_without_a_query():
    assert needs_of_query(None) == Needs()


def test_without_reachability_what_needs_it_is_not_known():
    heap = heap_of([(0x1000, 16, State.IN_USE, 0)])
    for text in ("reach == leaked", "type == unknown", "refs == 0", "confidence == none", "state == leaked"):
        for query in (parse(text), Not(parse(text))):
            assert not find_matching(query, HeapColumns(heap, 0)).any()


def test_every_field_has_a_kind_and_is_compared():
    tree = And(tuple(parse(text) for text in ("size == 1", "state == free")))
    assert [compare.field for compare in each_compare(Not(tree))] == ["size", "state"]
    assert set(FIELDS.values()) == set(FieldKind)
