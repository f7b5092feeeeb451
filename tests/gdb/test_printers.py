"""The pretty-printers: each line against the program's truth or gdb's own figures, and garbage that they survive."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from gdbext.wording import grouped, size_text
from tests.gdb.bridged import DATA, gdb, need_gdb, python
from tests.support.boards import Board
from tests.support.gdbrun import LOADER
from tests.support.glibcs import Unavailable
from tests.support.truth import address


@pytest.fixture(autouse=True)
def _gdb():
    need_gdb()


# One name, to be seen and switched off.


def test_they_are_seen_under_one_name():
    output = gdb(f"source {LOADER}", "info pretty-printer")
    assert re.search(r"^  gdbext\n    glibc\n    lists\n    tables$", output.out, re.MULTILINE), output
    assert output.out.count("gdbext") == 1 and output.err == ""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    need_gdb()
    if not shutil.which("gcc"):
        pytest.skip("no gcc on this machine")
    path = tmp_path_factory.mktemp("printed") / "printed"
    subprocess.run(["gcc", "-g", "-O0", "-Wall", "-Werror", str(DATA / "printed.c"), "-o", str(path)], check=True)
    return path


def printed(program, *expressions, before=()):
    """Return what gdb prints of each expression when all has been built."""
    marked = [step for one in expressions for step in ("echo \\n>>>", f"output {one}")]
    output = gdb("break built", "run", *before, *marked, options=[str(program)])
    assert "Python Exception" not in output.err and "Traceback" not in output.err, output
    texts = [text.strip() for text in output.out.split(">>>")[1:]]
    assert len(texts) == len(expressions), output
    return texts


def test_disabling(program):
    raw = "{next = 0x"
    shown = printed(program, "ring", before=["disable pretty-printer global gdbext"])
    shown += printed(program, "ring", before=["disable pretty-printer global gdbext;lists"])
    shown += printed(program, "/r ring")
    assert all(text.startswith(raw) for text in shown), shown
    on_again = ["disable pretty-printer global gdbext", "enable pretty-printer global gdbext"]
    assert printed(program, "ring", before=on_again)[0].startswith("linux-list: 5 nodes")
    assert printed(program, "ring", before=["disable pretty-printer global gdbext;tables"])[0].startswith("linux-list:")


THEIRS = """
import gdb, gdb.printing
class Theirs:
    def __init__(self, value): pass
    def to_string(self): return 'THEIRS'
found = gdb.printing.RegexpCollectionPrettyPrinter('theirs')
found.add_printer('list_head', '^list_head$', Theirs)
gdb.printing.register_pretty_printer(None, found)
"""


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_what_others_print_stays_theirs(program, tmp_path, first):
    theirs, ours = python(tmp_path / "theirs.py", THEIRS), f"source {LOADER}"
    order = (ours, theirs) if first == "ours" else (theirs, ours)
    commands = [*order, f"file {program}", "break built", "run", "output ring", "output hashed"]
    output = gdb(*commands, load=False)
    assert "THEIRS" in output.out and "linux-hlist: 3 nodes" in output.out, output


def test_what_only_bears_the_name_is_gdbs_to_print(program):
    assert printed(program, "words", "plain", "&ring", "ring.next") == [
        "{words = 3}", "{first = 1, inner = {words = 2}}", *printed(program, "&ring", "ring.next"),
    ]  # fmt: skip
    assert printed(program, "&ring")[0].startswith("(struct list_head *) 0x")


def test_nothing_is_imported_for_what_is_not_ours(program, tmp_path):
    """A program that has no table, and one that has some, before it runs."""
    other = tmp_path / "chains"
    subprocess.run(["gcc", "-g", "-pthread", str(DATA / "chains.c"), "-o", str(other)], check=True)
    asked = python(tmp_path / "ask.py", "import sys\nprint('\\nNUMPY', 'numpy' in sys.modules)\n")
    output = gdb("break visit", "run", "output *sound", "output $_siginfo", asked, options=[str(other)], fresh=True)
    assert "NUMPY False" in output.out and "hash = 0" in output.out, output
    output = gdb("output plain", "output table", "output ring", asked, options=[str(program)], fresh=True)
    assert "NUMPY False" in output.out and "size_mask = 0" in output.out, output


# Lists.


def test_list_heads(program):
    shown = printed(program, "ring", "empty", "members[2]", "hashed", "*glist", "*glist->next")
    pointers = [printed(program, f"/x (long)&members[{number}]")[0] for number in range(5)]
    children = ", ".join(f"[{number}] = {pointer}" for number, pointer in enumerate(pointers))
    assert re.sub(r" <members[^>]*>", "", shown[0]) == f"linux-list: 5 nodes = {{{children}}}"
    assert shown[1] == "linux-list: 0 nodes"
    assert shown[2].startswith("linux-list: 5 nodes"), "the others of its ring, the head among them"
    assert shown[3].startswith("linux-hlist: 3 nodes = {[0] = 0x")
    assert re.fullmatch(r"glib-list: 4 nodes = \{data = 0x\w+ <table>, next = 0x\w+, prev = 0x0\}", shown[4])
    assert shown[5].startswith("glib-list: 3 nodes = {data = ")


def test_broken_lists(program):
    shown = printed(program, "unlinked", "dangling", "*glist_rho", "*(struct list_head *)main", "*(GList *)main")
    assert re.match(r"linux-list: 0 nodes, then <(forbidden|bad-pointer) 0x100>", shown[0]), shown
    assert re.match(r"linux-list: (\d) nodes?, then <bad-pointer 0x\w+>", shown[1]), shown
    assert shown[2].startswith("glib-list: a cycle after 6 nodes = {data = "), shown
    for text in shown[3:]:
        assert re.match(r"(linux|glib)-list: .*, then <[a-z-]+ 0x\w+>", text), text


# Tables.


def test_a_table_its_bins_and_entries(program):
    table, one, empty, cycle, cut, entry = printed(
        program, "table", "bins[1]", "bins[0]", "bins[3]", "bins[5]", "entries[1]"
    )
    assert table.startswith("unbound-lruhash: 6 entries in 8 bins = {[1] = 3 entries, first 0x"), table
    assert "[3] = a cycle after 2 entries, first 0x" in table
    assert re.search(r"\[5\] = 1 entry, then <bad-pointer 0x\w+>, first 0x\w+\}$", table), table
    assert one.startswith("3 entries = {[0] = 0x") and one.count(" <entries") == 3, one
    assert empty == "0 entries" and cycle.startswith("a cycle after 2 entries")
    assert re.match(r"1 entry, then <bad-pointer 0x\w+>", cut)
    assert re.match(r"hash 0x11, key 0x\w+ = \{overflow_next = 0x.*, lock = \{0, 0, 0, 0, 0, 0, 0\}\}", entry), entry


def test_a_table_that_is_none(program):
    garbage, zeros, code = printed(program, "wild_table", "zero_table", "*(struct lruhash *)main")
    assert re.match(r"<cannot read: struct lruhash at 0x\w+: .*> = \{lock = 0, size = 1152", garbage), garbage
    assert zeros.startswith("unbound-lruhash: 0 entries in 0 bins"), zeros
    assert code.startswith(("<cannot read: struct lruhash at 0x", "unbound-lruhash: ")), code


def test_values_in_no_memory(program):
    code = "import gdb\nprint(gdb.Value(bytes(144), gdb.lookup_type('struct lruhash')).format_string())\n"
    code += "print(gdb.Value(bytes(16), gdb.lookup_type('struct list_head')).format_string())\n"
    output = gdb("break built", "run", f"python exec({code!r})", options=[str(program)])
    assert output.out.count("has no address here>") >= 2 and "Exception" not in output.err, output


def test_in_a_backtrace(program):
    output = gdb("break built", "run", "up", "bt full", "info locals", options=[str(program)])
    assert "Python Exception" not in output.err and "#1" in output.out


@pytest.mark.boards(target=("attach", "core", "gdbserver"), info=("debug",), glibc=("system",))
def test_tables_against_the_programs_truth(stage, board):
    here = stage("hash_tables", "--modes", "stale,healthy,growing,rehash", "--entries", "4000")
    groups = here.truth.details["groups"]
    names = ("stale", "healthy")
    wanted = [f"*{name}_cache" for name in names] + ["*keyspace"]
    worst = []
    for name in names:
        table = groups[name]["tables"][0]
        worst.append((table["max_len"], f"{name}_cache->array[0]->array[{table['max_bin']}]"))
    commands = [f"output {one}" for one in [*wanted, *(expression for _, expression in worst)]]
    output = here.text(*(step for command in commands for step in ("echo \\n>>>", command)))
    shown = [text.strip() for text in output.out.split(">>>")[1:]]
    for name, text in zip(names, shown):
        assert text.startswith(f"unbound-slabhash: {grouped(groups[name]['total'])} entries in 4 tables = {{"), text
        for table in groups[name]["tables"]:
            line = f"unbound-lruhash: {grouped(table['entries'])} entries in {grouped(table['bins'])} bins"
            assert f"[{table['index']}] = {table['address']} {line}" in text
    rehash = groups["rehash"]
    counts = f"{grouped(rehash['entries'])} entries in {grouped(rehash['bins'])} bins"
    assert shown[2].startswith(f"redis-dict: {counts}, rehashing")
    for (length, _), text in zip(worst, shown[3:]):
        assert text.startswith(f"{grouped(length)} entries" if length > 1 else f"{length} entr"), text


# malloc's structures, with libc's debug info.


def shown_of(here, *expressions, more=()):
    steps = [step for one in expressions for step in ("echo \\n>>>", f"output {one}")]
    output = here.text(*more, *steps, "echo \\n>>>")
    assert "Python Exception" not in output.err, output
    texts = [text.strip() for text in output.out.split(">>>")[1:-1]]
    if any("No struct type named" in text or not text for text in texts) or "No symbol" in output.err:
        pytest.skip("gdb has no debug info of this libc")
    return texts


@pytest.mark.boards(target=("attach", "core"), info=("debug",), once=("target",))
def test_chunks(stage, board):
    here = stage("two_waves")
    blocks = [(address(at), usable) for at, usable in here.truth.ledger["live_blocks"] if usable < 1 << 16][:20]
    shown = shown_of(here, *(f"*(struct malloc_chunk *){at - 16:#x}" for at, _ in blocks))
    for (at, usable), text in zip(blocks, shown):
        line = f"chunk at {at - 16:#x}: {usable + 8:#x} bytes, in use or cached"
        assert text == line or text.startswith(line + ", previous free ("), text


@pytest.mark.boards(target=("attach", "core"), info=("debug",), once=("target",))
def test_arena_and_its_free_lists(stage, board):
    here = stage("two_waves")
    oracle = here.python(
        "arena = gdb.parse_and_eval('main_arena')\n"
        "print('system', int(arena['system_mem']))\n"
        "size = int(gdb.parse_and_eval('main_arena.top->mchunk_size')) & ~7\nprint('top', size)\n"
        "base = int(arena['bins'].address)\n"
        "for index in range(0, 254, 2):\n"
        "    head, node, count = base + index * 8 - 16, int(arena['bins'][index]), 0\n"
        "    while node != head:\n"
        "        node, count = int(gdb.parse_and_eval(f'((struct malloc_chunk *){node})->fd')), count + 1\n"
        "    if count: print('bin', index, count, int(arena['bins'][index]))\n"
    ).splitlines()
    system, top = (int(line.split()[1]) for line in oracle if line.startswith(("system", "top")))
    bins = [line.split()[1:] for line in oracle if line.startswith("bin ")]
    assert bins
    arena, free = shown_of(here, "main_arena", f"*(struct malloc_chunk *){bins[0][2]}")
    assert f": system {size_text(system)}, top {size_text(top)}, 1 thread" in arena, arena
    for index, count, first in bins:
        assert re.search(rf"bins\[{index}\] = (unsorted, )?{count} chunks?, first {int(first):#x}", arena), arena
    assert ", free = {fd = 0x" in free, free


@pytest.mark.boards(target=("attach", "core"), info=("debug",), once=("target",))
def test_cached_blocks_and_thread_heaps(stage, board):
    here = stage("tcache_full")
    depth = here.truth.details["depth"]
    entries, following = [], []
    for cache in here.truth.details["tcaches"]:
        for one in cache["classes"]:
            blocks = [address(block) for block in one["blocks"]]
            entries.append(f"*(tcache_entry *){blocks[-1]:#x}")
            following.append(f"next {blocks[-2]:#x}")
            entries.append(f"*(tcache_entry *){blocks[0]:#x}")
            following.append("the last")
    arena = address(here.truth.details["tcaches"][0]["arena"])
    heap = f"*(heap_info *){arena & ~((64 << 20) - 1):#x}"
    shown = shown_of(here, heap, *entries)
    assert f" of arena {arena:#x}: " in shown[0] and "its first" in shown[0], shown[0]
    for text, wanted in zip(shown[1:], following):
        assert re.match(rf"cached block at 0x\w+: {wanted}\b", text), (text, wanted)
    # all caches, wherever a thread's TLS can be looked into
    output = here.text("thread apply all -q output *tcache")
    found = re.findall(r"tcache at 0x\w+: (\d+) chunks? in (\d+) classes?", output.out)
    if found:
        assert found.count((str(6 * depth), "6")) == 4, output
        assert output.out.count(f"counted {depth}, {depth} chunks of 0x") == 24, output


@pytest.mark.parametrize(
    "key, expected",
    [
        (None, "next 0x7000000300 | next 0x7007000300 | next 0x7007000300"),
        ("void *", "next 0x7000000300 | next 0x7000000300 (stored 0x7007000300)"
                   " | next 0x7000000300 (stored 0x7007000300)"),
        ("uintptr_t", "next 0x7007000300 (stored 0x7000000300) | next 0x7000000300 (stored 0x7007000300)"
                      " | next 0x7000000300 (stored 0x7007000300)"),
    ],
)  # fmt: skip
def test_types_and_sizes_tell_whether_links_are_mangled(tmp_path, key, expected):
    """Before 2.29 links are never mangled, since 2.34 always; between, a link leads to a block of the same size."""
    made = ["gcc", "-g", "-O0", str(DATA / "links.c"), "-o", str(tmp_path / "links")]
    subprocess.run([*made, *([f"-DKEY={key}"] if key else [])], check=True)
    shown = ["output *plain", "echo | ", "output *mangled", "echo | ", "output *first"]
    options = ["-iex", "set debug-file-directory /nonexistent", str(tmp_path / "links")]
    output = gdb("break built", "run", "echo >>>", *shown, options=options)
    said = re.sub(r"cached block at 0x\w+: |, key 0x\w+", "", output.out.partition(">>>")[2])
    assert re.sub(r" *\| *", " | ", said.strip()) == expected, output


@pytest.mark.boards(target=("core",), info=("debug",), glibc=("system",))
def test_garbage_as_mallocs_structures(stage, board):
    here = stage("two_waves")
    kinds = ("struct malloc_chunk", "struct malloc_state", "struct _heap_info", "struct tcache_perthread_struct",
             "struct tcache_entry")  # fmt: skip
    shown = shown_of(here, *(f"*({kind} *)main" for kind in kinds), *(f"*({kind} *)$sp" for kind in kinds))
    words = ("chunk at ", "arena at ", "heap at ", "tcache at ", "cached block at ")
    for text, word in zip(shown, words * 2):
        assert text.startswith(word), text


def test_a_cycle_in_a_tcache_ends(stages, tmp_path):
    try:
        here = stages.get(Board("core", "debug", "system"), "double_free", ())
    except Unavailable as reason:
        pytest.skip(str(reason))
    output = here.text("thread apply all -q output *tcache", "output main_arena")
    assert "a cycle after " in output.out, output
    assert "Python Exception" not in output.err
