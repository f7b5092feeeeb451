"""walklist, listcount, listprint and slabskew as they are typed: what they refuse, and what their options do.

The oracle is the program's own record, or gdb's own walk along the same links.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.gdb.answers import ask
from tests.gdb.test_errors import program, refusals
from tests.support.boards import Board
from tests.support.glibcs import Unavailable

ENTRIES = 600


@pytest.fixture(scope="module")
def here(stages):
    """A core with a spoilt table and a sound one."""
    arguments = ("--modes", "stale,misplaced,healthy", "--entries", str(ENTRIES), "--bins", "64")
    try:
        return stages.get(Board("core", "debug", "system"), "hash_tables", arguments)
    except Unavailable as reason:
        pytest.skip(str(reason))


CHAIN = "stale_cache->array[0]->lru_start"
WRONG = [
    ("walklist", "", "usage", "an expression is missing", "name a list, a table of bins, or a group of tables"),
    ("slabskew", "", "usage", "an expression is missing", "name a list, a table of bins, or a group of tables"),
    ("walklist", "nosuch", "usage", "cannot evaluate 'nosuch': No symbol", ""),
    ("walklist", "stale_cache --bins nosuch", "usage", "cannot evaluate 'nosuch': No symbol", ""),
    ("walklist", "stale_cache --stride 1.5", "usage", "cannot evaluate '1.5': it is no whole number", ""),
    ("walklist", "stale_cache --mask x=3", "usage", "'x=3' would assign", "gdbext never writes"),
    ("walklist", "stale_cache --end nosuch", "usage", "cannot evaluate 'nosuch': No symbol", ""),
    ("walklist", "stale_cache --max -1", "usage", "--max: '-1' is not a number", "write 0 or more"),
    ("walklist", "stale_cache --shape nosuch", "usage", "no shape nosuch", ""),
    ("walklist", f"{CHAIN} --next nosuch", "usage", "nosuch", ""),
    ("walklist", f"{CHAIN} --next lru_next --container struct nosuch link", "usage", "no type struct nosuch", ""),
    ("walklist", f"{CHAIN} --container node", "usage", "--container needs 2 values", "write --container TYPE MEMBER"),
    ("walklist", "stale_cache --where $elem->nosuch", "usage",
     "cannot evaluate '$elem->nosuch': There is no member named nosuch", "$elem is the element"),
    ("walklist", "stale_cache --where '$elem->hash = 3'", "usage", "'$elem->hash = 3' would assign",
     "gdbext never writes"),
    ("walklist", "stale_cache --where '$elem->hash =='", "usage", "cannot evaluate '$elem->hash =='", ""),
    ("walklist", "stale_cache --check -a", "usage", "--check and --addresses exclude each other", "check first"),
    ("walklist", "stale_cache --check --where 1", "usage", "--check and --where exclude each other", "check first"),
    ("walklist", "stale_cache --check --each echo", "usage", "--check and --each exclude each other", "check first"),
    ("walklist", "stale_cache -a --each echo", "usage", "--addresses and --each exclude each other", "leave one away"),
    ("walklist", "stale_cache -b", "usage", "cannot evaluate 'stale_cache -b'", ""),
    ("listcount", "", "usage", "two words are needed, got none", "listcount HEAD NEXT; quote a word that has spaces"),
    ("listcount", "stale_cache", "usage", "two words are needed, got 1", "listcount HEAD NEXT"),
    ("listcount", "(a b) c d", "usage", "two words are needed, got 3", "listcount HEAD NEXT"),
    ("listprint", "stale_cache", "usage", "two words are needed, got 1", "listprint HEAD NEXT"),
    ("listcount", "stale_cache overflow_next", "usage", "stale_cache is no list: ", "walklist walks tables"),
    ("listcount", f"{CHAIN} nosuch", "usage", "nosuch", ""),
    ("listcount", f"{CHAIN} lru_next -q", "usage", "unknown option -q", ""),
    ("slabskew", f"{CHAIN} --next lru_next", "usage", "it has no bins", "walklist walks it"),
]  # fmt: skip


def test_what_is_refused(here):
    errors = refusals(here.options(), here.directory, [row[:2] for row in WRONG])
    for (name, rest, kind, message, hint), error in zip(WRONG, errors):
        case = f"{name} {rest}: {error}"
        assert error["kind"] == kind and message in error["message"], case
        assert (error["hint"] or "").startswith(hint), case


def test_without_a_target(tmp_path):
    commands = [("walklist", "x"), ("slabskew", "x"), ("listcount", "x y"), ("listprint", "x y")]
    assert {error["kind"] for error in refusals([], tmp_path, commands)} == {"no-target"}


# What gdb itself sees along the LRU list of a table.
WALK = """
import gdb
entry = gdb.parse_and_eval("{head}")
while int(entry):
    print("entry", hex(int(entry)), int(entry["hash"]))
    entry = entry["lru_next"]
"""


def entries_by_gdb(here, head):
    found = re.findall(r"^entry (0x[0-9a-f]+) (\d+)$", here.python(WALK.format(head=head)), re.MULTILINE)
    return [(address, int(hash)) for address, hash in found]


@pytest.fixture(scope="module")
def everything(here):
    """Every entry of stale_cache, as gdb sees it: its address and hash."""
    return [entry for at in range(4) for entry in entries_by_gdb(here, f"stale_cache->array[{at}]->lru_start")]


def test_addresses(here, everything):
    assert len(everything) == ENTRIES
    (answer,) = ask(here, "walklist stale_cache -a")
    assert sorted(row["address"] for row in answer["data"]["elements"]) == sorted(address for address, _ in everything)
    plain = here.text("walklist stale_cache -a", "walklist -a stale_cache --limit 2")
    lines = [line for line in plain.out.splitlines() if re.fullmatch(r"0x[0-9a-f]+", line)]
    assert len(lines) == ENTRIES + 2 and lines[ENTRIES:] == lines[:2]
    piped = here.text("pipe walklist -a stale_cache | wc -l")
    assert str(ENTRIES) in piped.out.splitlines()


def test_what_is_wrong_does_not_go_into_the_pipe(here, tmp_path):
    (tmp_path / "bad.toml").write_text("name = 3\n")
    piped = here.text(f"set gx shapes-folder {tmp_path}", "pipe walklist -a stale_cache | wc -l")
    assert str(ENTRIES) in piped.out.splitlines() and "shape-file: bad.toml: " in piped.err


def test_a_condition(here, everything):
    known = {address for address, hash in everything if hash % 8 == 3}
    found, none = ask(
        here, "walklist stale_cache --where '$elem->hash % 8 == 3'", "walklist stale_cache --where 0"
    )
    data = found["data"]
    assert (data["walked"], data["matching"]) == (ENTRIES, len(known))
    assert {row["address"] for row in data["elements"]} == known
    assert (none["data"]["matching"], none["data"]["elements"]) == (0, [])


def test_filters_are_subsets_and_commute(here):
    first, second = "$elem->hash % 2 == 0", "$elem->hash % 3 == 0"
    lines = [f"walklist stale_cache -a --where '{text}'" for text in (first, second)]
    lines += [f"walklist -a stale_cache --where '{one} && {two}'" for one, two in ((first, second), (second, first))]
    even, third, both, too = (
        {row["address"] for row in answer["data"]["elements"]} for answer in ask(here, *lines)
    )
    assert both == too == even & third and both < even


def test_a_command_for_each_element(here, everything):
    (answer,) = ask(here, "walklist stale_cache --each 'output $elem->hash' --limit 0")
    rows = answer["data"]["elements"]
    assert {row["address"]: int(row["output"]) for row in rows} == dict(everything)
    text = here.text("walklist stale_cache --each 'output $elem->hash' --limit 3")
    numbers = [line for line in text.out.splitlines() if line.isdigit()]
    assert [int(number) for number in numbers] == [int(row["output"]) for row in rows[:3]]
    assert f"{ENTRIES - 3} more (--limit 0 takes all)" in text.err
    failing = here.text("walklist stale_cache --each 'output $elem->nosuch' --limit 1")
    assert "There is no member named nosuch" in failing.out


def test_a_list_is_counted_and_printed(here):
    head = "healthy_cache->array[1]->lru_start"
    known = entries_by_gdb(here, head)
    count, some, shown, limited = ask(
        here,
        f"listcount {head} lru_next",
        f"listcount {head} lru_next --max 5",
        f"listprint {head} lru_next --field hash --field key,data",
        f"listprint {head} lru_next --field hash --limit 2",
    )
    assert count["data"] == {"count": len(known), "end": "null", "address": None, "cycle": None}
    assert (some["data"]["count"], some["data"]["end"]) == (5, "limit")
    rows = shown["data"]["elements"]
    assert [(row["address"], int(row["fields"]["hash"])) for row in rows] == known
    assert list(rows[0]["fields"]) == ["hash", "key", "data"]
    assert limited["data"]["elements"] == [{**row, "fields": {"hash": row["fields"]["hash"]}} for row in rows[:2]]
    text = here.text(f"listprint {head} lru_next --field hash --limit 2")
    assert f"… {len(known) - 2} more (--limit 0 shows all)" in text.out


def test_a_table_by_options_alone(here):
    table = "healthy_cache->array[2]"
    how = f"{table}->array --bins {table}->size --head overflow_list --next overflow_next --hash hash"
    typed, by_options = ask(here, f"slabskew {table}", f"slabskew {how}")
    (one,), (two,) = typed["data"]["tables"], by_options["data"]["tables"]
    for name in ("bins", "walked", "nonempty", "max_len", "max_bin", "histogram", "distinct_hashes", "verdict"):
        assert one[name] == two[name], name
    assert two["entries"] is None and two["misplaced"] is None


def test_the_exit_status(here):
    def status(*words):
        done = program(*words, "--core", here.core, "--json")
        return done.returncode, json.loads(done.stdout)

    code, answer = status("slabskew", "stale_cache")
    assert (code, answer["data"]["verdict"], answer["findings"]) == (1, "stale-hash", True)
    code, answer = status("slabskew", "healthy_cache")
    assert (code, answer["data"]["verdict"], answer["findings"]) == (0, "ok", False)
    assert status("walklist", "stale_cache")[0] == 0
    assert status("walklist", "healthy_cache", "--check")[0] == 0
    code, answer = status("walklist", "misplaced_cache", "--check")
    assert code == 1 and "misplaced-entry" in {problem["kind"] for problem in answer["problems"]}
    assert status("walklist", "healthy_cache", "--where", "$elem->hash == 1 || 'a' == 97")[1]["data"]["matching"] == 600
    assert status("walklist", "nosuch")[0] == 2


def test_text_of_the_shell_program(here):
    done = program("walklist", "healthy_cache", "-a", "--limit", "3", "--core", here.core)
    assert re.fullmatch(r"(0x[0-9a-f]+\n){3}", done.stdout)
    head = "(struct lruhash_entry *) stale_cache->array[0]->lru_start"
    done = program("listcount", head, "lru_next", "--core", here.core)
    assert re.search(r"^end: +null$", done.stdout, re.MULTILINE)


def test_thresholds_are_settings(here):
    text = here.text("set gx hot-bin 1000000", "slabskew stale_cache", "show gx hot-bin")
    assert re.search(r"^verdict: ok$", text.out, re.MULTILINE) and "1000000" in text.out
