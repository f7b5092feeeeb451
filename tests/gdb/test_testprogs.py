"""The test programs: what they claim lies in memory, as gdb and libc's debug info show it, without gdbext.

Each program is tried with one glibc here, in turn; the boards try the rest.
"""

from __future__ import annotations

import pytest

from tests.support import programs
from tests.support.boards import Board
from tests.support.glibcs import MATRIX, Unavailable
from tests.support.truth import address, addresses

MIB = 1 << 20
NEVER_BROKEN = ("healthy_server", "million_chunks", "no_heap", "plain_static")
WASTEFUL = ("arena_proliferation", "shrink_realloc", "stranded_arena", "two_waves")
SMALLER = {"million_chunks": ["--chunks", "20000"], "hash_tables": ["--entries", "2000"]}
DAMAGES = ("cycle", "fd", "bk", "size", "top", "prev_size")

SUMS = """
def number(value):
    return int(value) & (1 << 64) - 1
first = gdb.parse_and_eval('&main_arena')
arena = first
while True:
    facts = [number(arena[name]) for name in ('system_mem', 'mutex', 'attached_threads')]
    print('ARENA', number(arena), *facts)
    arena = arena['next'].cast(first.type)
    if number(arena) == number(first):
        break
print('MMAPPED', int(gdb.parse_and_eval('mp_.n_mmaps')), number(gdb.parse_and_eval('mp_.mmapped_mem')))
"""


@pytest.fixture
def core(stages):
    """A function: the kernel's core of a program, with the glibc of its turn."""

    def take(program, *arguments, turn=0):
        board = Board("core", "debug", MATRIX[turn % len(MATRIX)])
        try:
            return stages.get(board, program, arguments)
        except Unavailable as reason:
            pytest.skip(str(reason))

    return take


def rows(text, word):
    """Return the numbers of the lines that begin with a word."""
    lines = (line.split() for line in text.splitlines())
    return [[int(field) for field in fields[1:]] for fields in lines if fields[:1] == [word]]


def word_at(here, place):
    """Read one word of memory as gdb shows it."""
    (word,) = words_at(here, [place])
    return word


WORDS = """
for place in PLACES:
    try:
        print('WORD', int(gdb.parse_and_eval(f'*(unsigned long *) {place}')))
    except gdb.MemoryError:
        print('WORD -1')
"""


def words_at(here, places):
    """Read words of memory as gdb shows them; -1 where it cannot."""
    return [word for (word,) in rows(here.python(f"PLACES = {places}\n{WORDS}"), "WORD")]


def twins():
    names = programs.names()
    broken = [name for name in names if name not in NEVER_BROKEN]
    return [(name,) for name in names] + [(name, "--healthy") for name in broken]


@pytest.mark.parametrize(("turn", "command"), list(enumerate(twins())), ids=str)
def test_sums_told_are_those_in_memory(core, turn, command):
    name, *arguments = command
    here = core(name, *arguments, *SMALLER.get(name, ()), turn=turn)
    told = here.truth.malloc_info
    out = here.python(SUMS)
    system = [row[1] for row in rows(out, "ARENA")]
    if told is None:
        assert (system, rows(out, "MMAPPED"), here.truth.ledger["live"]["blocks"]) == ([0], [[0, 0]], 0)
        return
    assert system == [arena.system_bytes for arena in told.arenas]
    assert rows(out, "MMAPPED") == [[told.mmap_blocks, told.mmap_bytes]]
    assert told.mmap_blocks == (here.truth.ledger["mmapped"] or {"blocks": 0})["blocks"]
    assert here.truth.ledger["live"]["bytes"] <= told.system_bytes + told.mmap_bytes


@pytest.mark.parametrize(("turn", "name"), list(enumerate(WASTEFUL)))
def test_wasteful_programs_waste_and_their_twins_do_not(core, turn, name):
    def free_bytes(*arguments):
        info = core(name, *arguments, turn=turn).truth.malloc_info
        return sum(arena.rest_bytes for arena in info.arenas)

    assert free_bytes() > 16 * MIB
    assert free_bytes("--healthy") < MIB


@pytest.mark.parametrize("turn", range(len(MATRIX)))
def test_a_thread_stands_inside_malloc(core, turn):
    here = core("inside_malloc", turn=turn)
    held = {row[0]: row[2] for row in rows(here.python(SUMS), "ARENA")}
    arena = address(here.truth.details["arena"])
    assert held.pop(arena) == 1
    assert set(held.values()) == {0}
    assert "_int_malloc" in here.gdb("thread apply all backtrace").out


def test_its_twin_stands_outside(core):
    here = core("inside_malloc", "--healthy")
    assert {row[2] for row in rows(here.python(SUMS), "ARENA")} == {0}
    assert "_int_malloc" not in here.gdb("thread apply all backtrace").out


@pytest.mark.parametrize("turn", range(len(MATRIX)))
def test_a_block_freed_twice_follows_itself(core, turn):
    here = core("double_free", turn=turn)
    block = address(here.truth.details["tcache_block"])
    mask = block >> 12 if here.glibc.minor >= 32 else 0  # safe-linking
    assert word_at(here, block) ^ mask == block


@pytest.mark.parametrize("name", ["--healthy", ""])
def test_a_stranded_arena_has_nobody_attached(core, name):
    here = core("stranded_arena", *filter(None, [name]))
    attached = {row[0]: row[3] for row in rows(here.python(SUMS), "ARENA")}
    assert attached[address(here.truth.details["arena"])] == (1 if name else 0)


@pytest.mark.parametrize(("turn", "damage"), list(enumerate(DAMAGES)))
@pytest.mark.parametrize("bin_kind", ["unsorted", "small", "large"])
def test_the_damage_told_is_there(core, turn, damage, bin_kind):
    here = core("free_list_cycle", "--damage", damage, "--bin", bin_kind, turn=turn)
    told = here.truth.details
    assert word_at(here, told["field"]) == told["value_now"] != told["value_before"]


def test_an_overrun_breaks_the_next_size(core):
    told = core("overrun").truth.details
    gap = address(told["damaged_chunk"]) - address(told["before_chunk"])
    assert addresses(told["blocks"])[6] - addresses(told["blocks"])[5] == gap
    here = core("overrun")
    assert word_at(here, told["size_field"]) == told["size_now"] != told["size_before"]


WALK_TABLES = """
def length(entry):
    count = 0
    while int(entry):
        count += 1
        entry = entry['overflow_next']
    return count
for name in GROUPS:
    group = gdb.parse_and_eval(name + '_cache')
    for number in range(int(group['size'])):
        table = group['array'][number]
        array, size = table['array'], int(table['size'])
        lengths = [length(array[at]['overflow_list']) for at in range(size)]
        counts = [[each, lengths.count(each)] for each in sorted(set(lengths))]
        longest = max(lengths)
        print(name, [int(table), size, int(table['num']), sum(lengths), longest, lengths.index(longest)], counts)
"""


@pytest.mark.parametrize("twin", ["", "--healthy"])
def test_tables_are_as_counted_at_insertion(core, twin):
    here = core("hash_tables", *filter(None, [twin]), "--entries", "2000", "--bins", "64")
    groups = {name: group for name, group in here.truth.details["groups"].items() if name != "rehash"}
    told = []
    for name, group in groups.items():
        for table in group["tables"]:
            numbers = [table[key] for key in ("bins", "entries", "walked", "max_len", "max_bin")]
            told.append(f"{name} {[address(table['address']), *numbers]} {table['histogram']}")
    found = here.python(f"GROUPS = {list(groups)}\n{WALK_TABLES}").splitlines()
    assert [line for line in found if line.partition(" ")[0] in groups] == told


def test_lists_are_broken_as_told(core):
    here = core("broken_lists")
    lists = here.truth.details["lists"]
    plain = ("item", "jobs")  # whose links are plain, and first in a node
    links = {name: told for name, told in lists.items() if told["by"] and told["kind"] in plain}
    nowhere = [lists[name]["held"] for name in ("dangling", "wild")]
    *held, one, other = words_at(here, [*(told["by"] for told in links.values()), *nowhere])
    assert dict(zip(links, held)) == {name: address(told["held"]) for name, told in links.items()}
    assert one == other == -1


def test_a_table_is_optimised_out_where_it_is_used_and_alive_in_the_caller(core):
    here = core("hidden_table")
    told = here.truth.details
    frame = "thread apply all -s -q frame apply all -s -q printf "
    out = here.gdb(f'{frame}"TABLE %p\\n", table', f'{frame}"GROUP %p\\n", private_group', "print daemon").out
    assert out.count("TABLE") == out.count("GROUP") == 1
    assert f"TABLE {told['table']['address']}" in out
    assert f"GROUP {told['private_group']['address']}" in out
    assert f"(struct daemon *) {told['daemon']['address']}" in out


LEAKED_SEARCH = """
import json
truth = json.load(open({file!r}))
wanted = {{int(one['address'], 16): one['name'] for one in truth['details']['blocks']}}
inferior, stack = gdb.selected_inferior(), int(gdb.parse_and_eval('(long)$sp'))
for line in gdb.execute('info files', to_string=True).splitlines():
    words = line.split()
    if ' is load' not in line or not words[0].startswith('0x'):
        continue
    start, end = int(words[0], 16), int(words[2], 16)
    data = memoryview(inferior.read_memory(start, end - start)).cast('B')[: (end - start) // 8 * 8].cast('Q')
    for at, value in enumerate(data):
        if value in wanted and not stack - (1 << 20) < start + 8 * at < stack - 128:
            print('WORD', start + 8 * at, value)
"""


def test_leaks_names_its_blocks_nowhere_but_where_it_says(core):
    """No word of the core is the address of a leaked block, but below the stack pointer and in leaked blocks."""
    here = core("leaks", "--modes", "plain,chain,cycle,arena,realloc,huge,tagged,unaligned", turn=1)
    file = str(here.directory / "truth.json")
    words = rows(here.python(LEAKED_SEARCH.format(file=file)), "WORD")
    blocks = {address(one["address"]): one for one in here.truth.details["blocks"]}
    spans = [(at, at + one["usable"]) for at, one in blocks.items() if one["state"] == "leaked"]
    outside = [(at, value) for at, value in words if not any(start <= at < end for start, end in spans)]
    assert [(hex(at), blocks[value]["name"]) for at, value in outside if blocks[value]["state"] == "leaked"] == []
    roots = {at for at, one in blocks.items() if one["role"] == "leak root"}
    assert roots and not roots & {value for _, value in words}


def test_mangled_stores_pointers_as_it_says(core):
    here = core("mangled", turn=3)
    told = [address(one["address"]) for one in here.truth.details["blocks"] if one["name"] in ("first", "next")]
    code = "link = lambda at: int(gdb.parse_and_eval(f'*(unsigned long *) {at}'))\n"
    code += "".join(f"print('SAYS', link({at}) ^ {at} >> 12, link({at}))\n" for at in told)
    links = rows(here.python(code), "SAYS")
    assert [int(revealed) for revealed, _ in links] == [*told[1:], 0]
    assert not {int(plain) for _, plain in links} & {0, *told}


def test_who_points_points_as_it_says(core):
    here = core("who_points", turn=2)
    told = here.truth.details
    names = ["cache.head", "lonely", "inside", "dangling", "owner_a", "owner_b"]
    names += ["owner_a->right->left", "owner_b->left->left"]
    code = "".join(f"print('SAYS', int(gdb.parse_and_eval('(unsigned long) ({name})')))\n" for name in names)
    values = [int(row[0]) for row in rows(here.python(code), "SAYS")]
    nodes = [address(node) for node in told["nodes"]]
    expected = [address(told[name]) for name in ("alone", "of_middle", "freed")]
    assert values == [
        address(told["chain"][0]), expected[0], expected[1] + 24, expected[2], nodes[0], nodes[3], nodes[5], nodes[5]
    ]  # fmt: skip
    registers = here.gdb("thread apply all -q print/x $r12").out
    assert registers.count(told["in_register"]) == 1
