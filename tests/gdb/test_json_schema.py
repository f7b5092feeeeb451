"""docs/json.md against what the commands really write, and against the kinds that the source names."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, Iterator, NamedTuple

import pytest

import gdbext
from gdbext.grammar import catalogue
from gdbext.structures.walk import checking
from tests.gdb.answers import ask
from tests.support import growing
from tests.support.boards import Board
from tests.support.cache import CHECKOUT
from tests.support.glibcs import Unavailable
from tests.support.jestages import STALL, JeBoard
from tests.support.jestages import get as get_jemalloc
from tests.support.parked import Parked

DOCUMENT = (CHECKOUT / "docs" / "json.md").read_text(encoding="utf-8")
COMMANDS = tuple(spec.name for spec in catalogue.COMMANDS if not spec.raw)
# Commands that want an expression: asked for a table of hash_tables.
_CHAIN = "stale_cache->array[0]->lru_start lru_next"
STRUCTURES = {
    "walklist": "walklist stale_cache",
    "walklist (list)": "walklist stale_cache->array[0]->lru_start --next lru_next --max 3",
    "walklist (where)": "walklist stale_cache --where '$elem->hash % 16 == 3'",
    "walklist (each)": "walklist stale_cache --limit 2 --each 'print $elem->hash'",
    "walklist (addresses)": "walklist -a stale_cache --limit 2",
    "listcount": f"listcount {_CHAIN}",
    "listcount (limit)": f"listcount {_CHAIN} --max 3",
    "listprint": f"listprint {_CHAIN} --field hash,nosuch",
    "slabskew": "slabskew stale_cache",
    "slabskew (rehash)": "slabskew keyspace",
    "report": "gx report",
    "shapes list": "gx shapes list",
    "shapes show": "gx shapes show unbound-lruhash",
    "shapes guess": "gx shapes guess struct lruhash",
    "shapes save": "gx shapes save struct slabhash {folder}/saved.toml",
    "breakpoints": "gx breakpoints chain main --head stale_cache --next nosuch --longer 5",
    "breakpoints (list)": "gx breakpoints list",
    "slabskew (raw)": "slabskew stale_cache->array[0]->array --bins 16 --head overflow_list --next overflow_next",
}
UNLISTED = ("leaked", "possibly_leaked", "reached_by_offset")  # null without --list and --possible
BLOCK_COLUMNS = "reach,reached_by_offset,refs,type,confidence,thread"
# Asked for a program that leaks.
LEAKS = {"triage": "triage", "blocks leaks": "blocks leaks --list --possible", "report": "gx report"}
# Asked for who_points.
POINTERS = {
    "blocks refs": "blocks refs {chain[2]} --depth 3",
    "blocks refs (middle)": "blocks refs {of_middle} --interior",
    "blocks refs (register)": "blocks refs {in_register}",
    "blocks refs (freed)": "blocks refs {freed}",
    "blocks refs (stale)": "blocks refs {of_freed}",
    "blocks refs (address)": "blocks refs &cache",
    "blocks path": "blocks path {nodes[6]} --roots 0",
    "blocks path (register)": "blocks path {in_register}",
    "blocks path (leaked)": "blocks path {leaked[1]}",
    "blocks path (freed)": "blocks path {freed}",
    "blocks retained": "blocks retained",
}
# Asked for threads that wait: of locks, and of spin_convoy.
LOCKS = {
    "lockwait": "lockwait",
    "lockwait (compared)": "lockwait --compare={folder}/earlier.json",
    "lockwait (stacks)": "lockwait --stacks",
}
# Asked for programs that use jemalloc: one with everything, one whose pages do not decay, one that is damaged.
JEMALLOC = tuple(name for name in COMMANDS if name.startswith("jemalloc"))
# Asked for a Python.
PYTHON = tuple(name for name in COMMANDS if name.startswith("python"))
PYTHON_SCRIPT = """
import gc, os, signal
gc.disable()
kept = [[n] for n in range(900)]
for one in kept: one.append(one)
del kept, one
os.write(1, b"parked")
signal.pause()
"""
JEMALLOC_STAGES = (
    (JeBoard("core", "debug", "5.3.1"), "jemalloc_zoo", (), {}),
    (JeBoard("core", "debug", "5.2.1"), "jemalloc_stalled", (), {"conf": f"{STALL},oversize_threshold:0"}),
    (JeBoard("gcore", "debug", "5.3.0"), "jemalloc_zoo", ("--threads=2",), {"damage": ("szind",)}),
)
# What pipelines rely on: DESIGN, section 6, as far as the commands exist.
PROMISED = {
    "rss": "entries[].owner entries[].bytes entries[].resident total residual",
    "blocks summary": "totals.used_blocks totals.used_bytes totals.free_blocks totals.free_bytes"
    " totals.tcache_blocks totals.tcache_bytes by_size[].size by_size[].used_blocks by_size[].free_blocks",
    "glibc arenas": "arenas[].address arenas[].kind arenas[].system_mem arenas[].walked_bytes"
    " arenas[].in_use_bytes arenas[].in_use_blocks arenas[].tcache_bytes arenas[].bins_bytes"
    " arenas[].top_bytes arenas[].trimmable_bytes arenas[].threads arenas[].in_flux arenas[].overhead_bytes"
    " arenas[].foreign_bytes mmapped.blocks mmapped.bytes mmapped.expected_blocks mmapped.expected_bytes",
    "jemalloc arenas": "arenas[].index arenas[].allocated arenas[].active arenas[].dirty arenas[].muzzy"
    " arenas[].retained arenas[].metadata arenas[].threads totals.allocated",
    "jemalloc decay": "arenas[].index arenas[].dirty.decay_ms arenas[].dirty.npages arenas[].dirty.allowed_npages"
    " arenas[].dirty.sweeps arenas[].dirty.madvises arenas[].dirty.purged arenas[].muzzy.npages threads[].number"
    " threads[].ticker",
    "walklist": "tables[].index tables[].address tables[].bins tables[].entries tables[].walked tables[].nonempty"
    " tables[].max_len tables[].max_bin tables[].end total max_len",
    "slabskew": "tables[].index tables[].address tables[].bins tables[].entries tables[].walked tables[].nonempty"
    " tables[].max_len tables[].max_bin tables[].end total max_len tables[].distinct_hashes"
    " tables[].worst_bins[].bin tables[].worst_bins[].len tables[].worst_bins[].distinct_hashes"
    " tables[].worst_bins[].distinct_keys tables[].misplaced tables[].histogram tables[].verdict verdict",
    "lockwait": "threads[].lwp threads[].tid threads[].state threads[].primitive threads[].confidence threads[].lock"
    " threads[].owner locks[].waiters locks[].word locks[].holder_candidates[].places locks[].holder_position"
    " cycles[][]",
    "blocks leaks": "totals.reached_blocks totals.possibly_leaked_blocks totals.leaked_blocks totals.leaked_bytes"
    " totals.leak_root_blocks totals.indirect_blocks missing[].what roots[].kind roots[].pointers by_type[].type"
    " by_type[].kept_bytes by_size[].size by_size[].blocks leak_roots[].address leak_roots[].kept_bytes"
    " leaked[].address leaked[].state leaked[].leak_root possibly_leaked[].address",
    "blocks refs": "block reach pointers interior references[].kind references[].address references[].place"
    " stale_references[].address",
    "blocks path": "from_root kept_by steps[].kind steps[].address steps[].to steps[].place",
    "blocks retained": "reached kept_by_one shared roots[].root roots[].retained blocks[].address blocks[].retained"
    " types[].type types[].retained",
    "triage": "findings[].kind findings[].severity findings[].bytes findings[].waiters"
    " findings[].confidence findings[].summary findings[].evidence findings[].remedy ledger",
}
ENVELOPE = [
    "schema", "tool", "target", "data", "evidence", "problems", "held_seconds", "complete", "findings", "status",
]  # fmt: skip
IDENTITY = {"exe": str, "build_id": str, "pid": int, "core": str, "time": float}


class Row(NamedTuple):
    """One line of a command's table."""

    kind: str
    meaning: str

    @property
    def nullable(self) -> bool:
        return self.kind.endswith(" or null")

    @property
    def plain(self) -> str:
        return self.kind[: -len(" or null")] if self.nullable else self.kind


def section(title: str) -> str:
    """Return the text under a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert found, f"docs/json.md has no section {title}"
    return found[1]


def table_rows(text: str) -> list[list[str]]:
    """Return the cells of every table row that begins with a word in backticks."""
    lines = (line for line in text.splitlines() if line.startswith("| `"))
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def fields_of(command: str) -> dict[str, Row]:
    rows = table_rows(section(f"`{command}`"))
    assert all(len(row) == 3 for row in rows), f"{command}: a row has not three cells"
    return {row[0].strip("`"): Row(row[1], row[2]) for row in rows}


def kinds_under(title: str) -> set[str]:
    """Return the words in backticks of the first column of a section's tables."""
    return {word for row in table_rows(section(title)) for word in re.findall(r"`([^`]+)`", row[0])}


FIELDS = {command: fields_of(command) for command in COMMANDS}


# ---- real answers ----


@pytest.fixture(scope="module")
def answers(stages, tmp_path_factory) -> dict[str, list[dict[str, Any]]]:
    """The envelopes of every command: of two cores, and of a damaged heap in a live process."""
    gathered: dict[str, list[dict[str, Any]]] = {command: [] for command in COMMANDS}
    for target, program in (
        ("core", "arena_proliferation"),
        ("core", "mmapped_blocks"),
        ("attach", "overrun"),
    ):
        try:
            stage = stages.get(Board(target), program)
        except Unavailable as reason:
            pytest.skip(str(reason))
        inside = stage.truth.ledger["live_blocks"][-1][0]
        left_out = ("compare", "blocks at", "blocks refs", "blocks path", *STRUCTURES, *LOCKS, *JEMALLOC, *PYTHON)
        lines = {command: command for command in COMMANDS if command not in left_out}
        lines.update({"blocks at": f"blocks at {inside}", "blocks at (stack)": "blocks at $sp"})
        lines["blocks list (columns)"] = f"blocks list --columns {BLOCK_COLUMNS}"
        lines["blocks types (list)"] = "blocks types --list *"
        lines.update({name: f"gx {name}" for name in ("commands", "report")})
        for name, envelope in zip(lines, ask(stage, *lines.values())):
            gathered[name.partition(" (")[0]].append(envelope)
    try:
        stage = stages.get(Board("core"), "hash_tables", ("--modes", "stale,rehash", "--entries", "500"))
    except Unavailable as reason:
        pytest.skip(str(reason))
    gathered["compare"].append(compared(tmp_path_factory.mktemp("growing")))
    folder = tmp_path_factory.mktemp("shapes")
    lines = {name: text.replace("{folder}", str(folder)) for name, text in STRUCTURES.items()}
    for name, envelope in zip(lines, ask(stage, *lines.values())):
        gathered[name.partition(" (")[0]].append(envelope)
    try:
        stage = stages.get(Board("core"), "leaks")
    except Unavailable as reason:
        pytest.skip(str(reason))
    for name, envelope in zip(LEAKS, ask(stage, *LEAKS.values())):
        gathered[name].append(envelope)
    try:
        stage = stages.get(Board("core"), "header_offsets")
    except Unavailable as reason:
        pytest.skip(str(reason))
    gathered["blocks leaks"] += ask(stage, "blocks leaks --list")
    try:
        stage = stages.get(Board("core"), "who_points")
    except Unavailable as reason:
        pytest.skip(str(reason))
    lines = {name: text.format(**stage.truth.details) for name, text in POINTERS.items()}
    for name, envelope in zip(lines, ask(stage, *lines.values())):
        gathered[name.partition(" (")[0]].append(envelope)
    for program, *mode in (("locks",), ("locks", "--mode=abba"), ("spin_convoy",)):
        try:
            stage = stages.get(Board("core"), program, mode)
        except Unavailable as reason:
            pytest.skip(str(reason))
        lines = {name: text.replace("{folder}", str(folder)) for name, text in LOCKS.items()}
        before = [f"lockwait --json={folder}/earlier.json"]
        for name, envelope in zip(lines, ask(stage, *lines.values(), before=before)):
            gathered[name.partition(" (")[0]].append(envelope)
    with Parked("3.11", folder, PYTHON_SCRIPT) as parked, gdbext.open_process(parked.pid) as session:
        for name in PYTHON:
            gathered[name].append(session.run(f"gx {name}").to_dict())
        gathered["lockwait"].append(session.run("lockwait").to_dict())
    for board, program, arguments, how in JEMALLOC_STAGES:
        try:
            stage = get_jemalloc(stages, board, program, arguments, **how)
        except Unavailable:
            break  # the tests of these commands skip
        neutral = ("triage", "rss", "blocks summary", "blocks list")
        lines = {**{name: name for name in neutral}, **{name: f"gx {name}" for name in JEMALLOC}}
        for name, envelope in zip(lines, ask(stage, *lines.values())):
            gathered[name].append(envelope)
    return gathered


def compared(folder: Path) -> dict[str, Any]:
    """Return what the shell program says of two cores of a process: gdb has one, and no names for the other."""
    line = [sys.executable, "-m", "gdbext.cli", "compare", "--memory-limit", "1G", "--json"]
    line += map(str, growing.cores(folder, "list,threads", (0, 1)))
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, env=environment)
    envelope: dict[str, Any] = json.loads(done.stdout)
    return envelope


def leaves(value: Any, known: dict[str, Row], path: str = "") -> Iterator[tuple[str, Any]]:
    """Iterate over the fields of an answer: the path under which each is documented, and its value."""
    row = known.get(path)
    if isinstance(value, dict) and row is None:
        for name, inner in value.items():
            yield from leaves(inner, known, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and row is None:
        for inner in value:
            yield from leaves(inner, known, f"{path}[]")
    else:
        yield path, value


def is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_threads(value: Any) -> bool:
    members = {"number": int, "lwp": int, "name": str}

    def is_thread(one: Any) -> bool:
        typed = (one[name] is None or isinstance(one[name], kind) for name, kind in members.items())
        return set(one) == set(members) and all(typed)

    return isinstance(value, list) and all(is_thread(one) for one in value)


def is_named(value: Any, inner: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) and inner(one) for name, one in value.items())


def is_pairs(value: Any) -> bool:
    return isinstance(value, list) and all(len(pair) == 2 and all(map(is_integer, pair)) for pair in value)


def is_owner(value: Any) -> bool:
    whole = set(value) == {"number", "lwp", "tid", "alive"} and is_integer(value["tid"])
    return whole and value["alive"] is (value["number"] is not None)


def is_position(value: Any) -> bool:
    whole = set(value) == {"thread", "table", "table_name", "bin", "position", "length", "place"}
    return whole and CHECKS["address"](value["table"]) and all(map(is_integer, (value["thread"], value["length"])))


def is_death(value: Any) -> bool:
    whole = {"signal", "thread", "cause", "address", "place", "message", "source", "frames", "stopped"}
    return set(value) == whole and CHECKS["text"](value["signal"]) and CHECKS["texts"](value["frames"])


def is_waits(value: Any) -> bool:
    whole = {"count", "threads", "function", "line", "what", "advice", "idle"}
    return isinstance(value, list) and all(set(one) == whole for one in value)


def is_answer(command: str, value: Any) -> bool:
    return not list(wrong_fields(value, FIELDS[command]))


CHECKS = {
    "address": lambda value: isinstance(value, str) and re.fullmatch(r"0x(0|[1-9a-f][0-9a-f]*)", value),
    "bytes": lambda value: is_integer(value) and value >= 0,
    "count": lambda value: is_integer(value) and value >= 0,
    "signed bytes": is_integer,
    "signed": is_integer,
    "death": is_death,
    "waits": is_waits,
    "owner": is_owner,
    "position": is_position,
    "share": lambda value: isinstance(value, float) and 0 <= value <= 1,
    "text": lambda value: isinstance(value, str),
    "word": lambda value: isinstance(value, str),
    "flag": lambda value: isinstance(value, bool),
    "threads": is_threads,
    "number": lambda value: is_integer(value) or (isinstance(value, float) and value >= 0),
    "named texts": lambda value: is_named(value, lambda one: one is None or isinstance(one, str)),
    "named counts": lambda value: is_named(value, lambda one: is_integer(one) and one > 0),
    "pairs": is_pairs,
    "texts": lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    "details": lambda value: isinstance(value, dict) and value,
    "numbers": lambda value: isinstance(value, list) and all(one is None or is_integer(one) for one in value),
    "texts or nulls": lambda value: CHECKS["texts"]([one for one in value if one is not None]),
    "counts by word": lambda value: is_named(value, CHECKS["numbers"]),
}
CHECKS.update({f"as `{command}`": partial(is_answer, command) for command in COMMANDS})


def wrong_fields(data: Any, known: dict[str, Row]) -> Iterator[str]:
    """Iterate over what an answer holds against its table."""
    for path, value in leaves(data, known):
        row = known.get(path)
        if value is None and path in UNLISTED:
            continue
        if row is None:
            yield f"{path} is not documented"
        elif value is None:
            if not row.nullable:
                yield f"{path} is null, documented as {row.kind}"
        elif not CHECKS[row.plain](value):
            yield f"{path} is {value!r}, documented as {row.kind}"
        elif row.plain == "named counts" and set(value) - set(re.findall(r"`([^`]+)`", row.meaning)):
            yield f"{path} is {value!r}, whose words are not all in its list"
        elif row.plain == "word" and value not in re.findall(r"`([^`]+)`", row.meaning):
            yield f"{path} is {value!r}, which is not in its list"


def require(answers, command: str) -> None:
    if command in JEMALLOC and len(answers[command]) < len(JEMALLOC_STAGES):
        pytest.skip("no jemalloc of all the versions that are asked")


@pytest.mark.parametrize("command", COMMANDS)
def test_answers_are_as_documented(answers, command):
    for envelope in answers[command]:
        assert envelope["schema"] == f"gdbext/{command.replace(' ', '-')}/2"
        assert sorted(set(wrong_fields(envelope["data"], FIELDS[command]))) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_documented_fields_occur(answers, command):
    require(answers, command)
    known = FIELDS[command]
    seen = {path for envelope in answers[command] for path, _ in leaves(envelope["data"], known)}
    assert sorted(set(known) - seen) == []


@pytest.mark.parametrize("command", PROMISED)
def test_the_names_of_the_design_are_there(answers, command):
    require(answers, command)
    known = FIELDS[command]
    seen = {path for envelope in answers[command] for path, _ in leaves(envelope["data"], known)}
    assert sorted(set(PROMISED[command].split()) - seen) == []


def test_the_envelope_is_as_documented(answers):
    for command, envelopes in answers.items():
        for envelope in envelopes:
            assert list(envelope) == ENVELOPE
            assert set(envelope["tool"]) == {"version"}
            assert list(envelope["target"]) == list(IDENTITY)
            for name, kind in IDENTITY.items():
                assert envelope["target"][name] is None or isinstance(envelope["target"][name], kind)
            # beside damage nobody knows what leaked
            assert envelope["complete"] is True or (command == "blocks leaks" and envelope["data"]["missing"]), command
            assert isinstance(envelope["findings"], bool) and envelope["held_seconds"] is None
            assert envelope["status"] == (1 if envelope["findings"] else 0 if envelope["complete"] else 3)


def test_evidence_and_problems_are_as_documented(answers):
    kinds = kinds_under("Kinds of problems")
    problems = []
    for envelope in (envelope for envelopes in answers.values() for envelope in envelopes):
        assert all(set(one) == {"subject", "message"} for one in envelope["evidence"])
        problems += envelope["problems"]
    assert problems, "a damaged heap has problems"
    for problem in problems:
        assert list(problem) == ["kind", "address", "message", "corruption"]
        assert problem["kind"] in kinds
        assert problem["address"] is None or CHECKS["address"](problem["address"])
        assert isinstance(problem["corruption"], bool)


def test_details_of_findings_are_as_documented(answers):
    rows = table_rows(section("Details of findings"))
    words = [(re.findall(r"`([^`]+)`", first), set(re.findall(r"`([^`]+)`", text))) for first, text in rows]
    known = {kind: fields for kinds, fields in words for kind in kinds}
    known["shrink-realloc"] |= known["fragmentation"]
    assert set(known) == kinds_under("Kinds of findings")
    seen = set()
    for envelope in (envelope for envelopes in answers.values() for envelope in envelopes):
        for finding in (envelope["data"] or {}).get("findings", ()):
            seen.add(finding["kind"])
            assert set(names(finding["details"])) <= known[finding["kind"]], finding["kind"]
    assert {"corruption", "arena-proliferation", "deadlock"} <= seen


def names(value: Any) -> Iterator[str]:
    """Iterate over the names of all fields of an object and of what it holds."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from names(inner)


def test_what_only_a_process_tells_is_null_on_a_core(answers):
    everything = [envelope["data"] for envelope in answers["rss"]]
    (process,) = (data for data in everything if data["rss"] is not None)
    cores = [data for data in everything if data is not process]
    for name in ("resident", "rss", "pss", "anon_huge_pages", "swap", "rss_difference"):
        assert all(data[name] is None for data in cores)
        assert is_integer(process[name])
    assert all(entry["not_in_core"] is None for entry in process["entries"])


# ---- the source ----

MADE = (ast.Call, ast.JoinedStr)
MAKERS = {"Problem", "doubt", "wrong", "_problem", "_skip", "_miss"}
HYPHENATED = re.compile(r"[a-z]+(-[a-z]+)+")


def modules() -> Iterator[ast.Module]:
    for folder in ("gdbext", "commands"):
        for path in sorted((CHECKOUT / folder).rglob("*.py")):
            yield ast.parse(path.read_text(encoding="utf-8"))


def strings(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def problem_kinds(module: ast.Module) -> Iterator[str]:
    """Iterate over the kinds of problems that a module names."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and called(node) in ("Problem", "doubt"):
            # What a function or a format makes is in COMPOSED.
            yield from (word for kind in node.args[:1] if not isinstance(kind, MADE) for word in strings(kind))
        yield from (word for place in kind_places(node) for word in strings(place) if HYPHENATED.fullmatch(word))


def kind_places(node: ast.AST) -> Iterator[ast.AST]:
    """Iterate over what may hold a kind: arguments of makers, their defaults, variables, returned pairs."""
    if isinstance(node, ast.Call) and called(node) in MAKERS:
        yield from node.args
    elif isinstance(node, ast.Assign) and any("kind" in getattr(to, "id", "") for to in node.targets):
        yield node.value
    elif isinstance(node, ast.FunctionDef):
        yield from node.args.defaults
    elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
        yield from node.value.elts[:1]


def test_every_kind_of_problem_is_documented():
    named = {
        kind
        for module in modules()
        if any(isinstance(node, ast.Call) and called(node) == "Problem" for node in ast.walk(module))
        for kind in problem_kinds(module)
    }
    assert {"chunk-size", "bin-cycle", "double-free", "truncated-core", "absent-file"} <= named
    assert sorted(named - NO_KINDS - kinds_under("Kinds of problems")) == []


NO_KINDS = {"next-bin"}  # how a table's chains end
# Kinds that gdbext.structures.walk.checking and its callers put together, and jemalloc's checks of lists.
COMPOSED = {
    f"{what}-{word}"
    for what in ("list", "chain", "lru")
    for word in (*checking._BROKEN.values(), "end", "prev", "last", "count")
} | {"extent-heap", "extent-list"}


def test_every_documented_kind_of_problem_is_in_the_source():
    words = COMPOSED | {word for module in modules() for word in strings(module)}
    assert sorted(kinds_under("Kinds of problems") - words) == []


def test_every_kind_of_error_is_documented():
    named = {
        word
        for module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error")
        for member in node.body
        if isinstance(member, ast.Assign) and getattr(member.targets[0], "id", "") == "kind"
        for word in strings(member.value)
    }
    assert "wrong-exe" in named
    assert named == kinds_under("Kinds of errors")


def test_every_kind_of_finding_is_documented():
    named = set()
    for module in modules():
        constants = {
            node.targets[0].id: node.value.value
            for node in module.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            if isinstance(node.targets[0], ast.Name)
        }
        tables = {node.target.id: node.value for node in module.body if isinstance(node, ast.AnnAssign)}
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and called(node) == "Finding":
                kind = node.args[0]
                named.update([constants[kind.id]] if isinstance(kind, ast.Name) else strings(kind))
                if isinstance(kind, ast.Subscript):  # of a table of kinds
                    named.update(strings(tables[kind.value.id]))
    assert named == kinds_under("Kinds of findings")
    assert named == set(re.findall(r"`([^`]+)`", FIELDS["triage"]["findings[].kind"].meaning))
