"""Types of blocks against what programs know of their own blocks: C++ with debug info, with symbols, with neither.

The program notes the type of each block that it makes; the answer is held against that for every block. Not known is
right; another type of high confidence is wrong, and must not happen once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from bisect import bisect_right
from collections import Counter
from functools import cached_property
from pathlib import Path

import pytest

from tests.support import gdbrun, preloaded
from tests.support.cache import CHECKOUT
from tests.support.glibcs import Unavailable

SOURCE = CHECKOUT / "tests" / "containers" / "type_zoo.cc"
FORMS = {"debug": ("-g", "-O0"), "symbols": ("-O1",), "stripped": ("-O1", "-s")}
# What others begin with is told by what it begins with, and never as sure.
BEGINNINGS = {"Big": "Header", "Bigger": "Header", "Pod[]": "Pod", "Linked": "Link", "Other": "Session"}
CLASSES = {
    "Circle",
    "Square",
    "Tagged",
    "shop::Widget<int>",
    "shop::(anonymous namespace)::Hidden",
    "std::make_shared<Session> object",
}
CONTENTS = {"C string", "UTF-16 text", "zeros"}
EVERY = "gx blocks types --list '*' --limit 0"
# With debug info of every label this share of blocks at least is known as what it is.
LESS = {"std::string text": 0.99, "Linked": 0.5, "C string": 0.5}


@pytest.fixture(scope="module", params=FORMS)
def form(request):
    return request.param


@pytest.fixture(scope="module")
def zoo(tmp_path_factory, form):
    try:
        gdbrun.gdb_program()
    except Unavailable as reason:
        pytest.skip(str(reason))
    if not shutil.which("g++"):
        pytest.skip("test programs need g++")
    folder = tmp_path_factory.mktemp(form)
    program = folder / "zoo"
    flags = ("-Wall", "-Wextra", "-Werror", *FORMS[form])
    done = subprocess.run(["g++", *flags, str(SOURCE), "-o", str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Zoo(program, folder)


class Zoo:
    """The program at its stop, as a core."""

    def __init__(self, program, folder, arguments="", words=()):
        self.program, self.folder = program, folder
        self.core, self.truth_file = folder / "core", folder / "truth.json"
        self.run = f"run {arguments} {self.truth_file}"
        gdbrun.run_gdb(
            [str(program), *words, "-ex", self.run, "-ex", f"generate-core-file {self.core}"], cwd=folder
        )
        assert self.core.exists()
        self.truth = self.read_truth()

    def read_truth(self):
        return json.loads(self.truth_file.read_text())

    def ask(self, files, *commands, before=()):
        """Ask commands in one gdb.

        :param files: gdb's words after the program.
        :param before: commands that are run first, when gdbext is loaded.
        """
        answers = [self.folder / f"answer-{at}.json" for at in range(len(commands))]
        for answer in answers:
            answer.unlink(missing_ok=True)
        asked = [*before, *(f"{command} --json={answer}" for command, answer in zip(commands, answers))]
        words = [word for command in asked for word in ("-ex", command)]
        output = preloaded.run_gdb([str(self.program), *files, *gdbrun.load_pack(), *words])
        return [gdbrun.read_envelope(answer, output) for answer in answers]

    def ask_core(self, *commands, before=()):
        return self.ask([str(self.core)], *commands, before=before)

    @cached_property
    def listed(self):
        """Every block of the core."""
        return self.ask_core(EVERY)[0]["data"]["blocks"]

    def list_live(self):
        return self.ask(["-ex", self.run], EVERY)[0]["data"]["blocks"]


def judged(truth, blocks):
    """Count (what it is, what it is said to be, confidence)."""
    said = {int(one["address"], 16): (one["name"], one["confidence"]) for one in blocks}
    return Counter((label, *said[int(at, 16)]) for at, label in truth["blocks"].items())


def wrong(counts):
    """Return what was said with high confidence and is not so."""
    return {one for one in counts if one[2] == "high" and one[1] != one[0] != ""}


def is_allowed(label, name, confidence, form):
    if name in (label, "unknown") or not label:
        return True
    if name == f"like {label}":
        return confidence == "low"
    if name == BEGINNINGS.get(label) or (label, name) == ("C string", "Session"):
        return confidence in ("low", "medium")
    if label == "std::vector<Circle> buffer":  # that its first words are one object is all that can be seen
        return name == "Circle" and confidence == "medium" and form != "debug"
    return name in ("C string", "zeros", "pointers") and confidence != "high"


def test_no_block_is_said_to_be_what_it_is_not(zoo, form):
    counts = judged(zoo.truth, zoo.listed)
    assert not wrong(counts)
    assert not [one for one in counts if not is_allowed(*one, form)]


def test_classes_are_known_whatever_was_stripped(zoo):
    counts = judged(zoo.truth, zoo.listed)
    known = {label for label, name, confidence in counts if label == name and confidence == "high"}
    assert known >= CLASSES
    assert {name for label, name, _ in counts if label == "Circle[]"} == {"Circle[]"}


def test_contents_are_told_where_nothing_else_is(zoo):
    counts = judged(zoo.truth, zoo.listed)
    assert {label for label, name, _ in counts if label == name} >= CONTENTS


@pytest.mark.parametrize("form", ["debug"], indirect=True)
def test_with_debug_info_nearly_all_is_known(zoo, form):
    counts = judged(zoo.truth, zoo.listed)
    total, right = Counter(), Counter()
    for (label, name, _), number in counts.items():
        total[label] += number
        right[label] += number if name == label else 0
    known = {label: right[label] / total[label] for label in total if label and label not in BEGINNINGS}
    assert not {label: share for label, share in known.items() if share < LESS.get(label, 1)}


def test_a_process_gives_the_same_as_its_core(zoo, form):
    counts = judged(zoo.truth, zoo.listed)
    live = zoo.list_live()
    assert judged(zoo.read_truth(), live) == counts


def test_the_summary_adds_up(zoo, form):
    (answer,) = zoo.ask_core("gx blocks types --by-size --limit 0")
    data = answer["data"]
    assert sum(row["blocks"] for row in data["types"]) == data["total_blocks"]
    assert sum(row["bytes"] for row in data["types"]) == data["total_bytes"]
    assert data["known_bytes"] + data["contents_bytes"] + data["unknown_bytes"] == data["total_bytes"]
    assert abs(sum(row["share"] for row in data["types"]) - 1) < 1e-6
    sizes = [row for row in data["types"] if row["recognised_by"] == "unknown"]
    assert len(sizes) > 1 and all(row["confidence"] is None for row in sizes) or form == "debug"
    kinds = {problem["kind"] for problem in answer["problems"]}
    assert ("types-without-debug-info" in kinds) == (form != "debug")


def test_without_variables_it_is_told(zoo, form):
    (answer,) = zoo.ask_core("gx blocks types --limit 0", before=["set gx type-search-variables 0"])
    kinds = {problem["kind"] for problem in answer["problems"]}
    assert "types-cut-short" in kinds or form != "debug"
    assert {row["name"] for row in answer["data"]["types"]} >= CLASSES


def test_blocks_of_a_type_that_there_is_not(zoo):
    part, nothing, misspelt = zoo.ask_core(
        *(f"gx blocks types --list {name}" for name in ("Squar", "NoSuchType", "Sqaure"))
    )
    assert {row["name"] for row in part["data"]["blocks"]} == {"Square"}
    assert nothing["error"]["kind"] == "usage" and "NoSuchType" in nothing["error"]["message"]
    assert "Square" in misspelt["error"]["hint"]


# ---- CPython ----

SCRIPT = """
import json, os, signal, sys
class Thing: pass
class Slotted: __slots__ = ("a",)
kept = {
    "Thing": [Thing() for _ in range(500)], "Slotted": [Slotted() for _ in range(300)],
    "dict": [{"a": at, "b": str(at)} for at in range(700)], "list": [[at] for at in range(400)],
    "tuple": [(at, str(at)) for at in range(200)], "str": ["text number %d" % at for at in range(900)],
    "float": [at * 1.5 for at in range(600)], "bytes": [b"x%d" % at for at in range(300, 400)],
    "set": [{at, at + 1} for at in range(150)], "int": [at << 70 for at in range(1, 300)],
}
own = ("Thing", "Slotted")
truth = {"%#x" % id(one): "__main__." * (name in own) + name for name, many in kept.items() for one in many}
with open(sys.argv[1], "w") as out: json.dump({"objects": truth}, out)
os.kill(os.getpid(), signal.SIGTRAP)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    try:
        gdbrun.gdb_program()
    except Unavailable as reason:
        pytest.skip(str(reason))
    program = Path("/usr/bin/python3")
    if not program.exists():
        pytest.skip("no python3 of the system on this machine")
    folder = tmp_path_factory.mktemp("python")
    script = folder / "objects.py"
    script.write_text(SCRIPT)
    # Its own arenas are no blocks of malloc.
    words = ("-ex", "set environment PYTHONMALLOC=malloc")
    return Zoo(Path(os.path.realpath(program)), folder, str(script), words)


def test_objects_of_python_are_known_by_their_types(python):
    """Every object that the program lists; before some stand up to four words of the collector."""
    blocks = python.listed
    starts = [int(one["address"], 16) for one in blocks]
    for at, name in python.truth["objects"].items():
        block = blocks[bisect_right(starts, int(at, 16)) - 1]
        assert int(at, 16) - int(block["address"], 16) in (0, 16, 32), (at, name, block)
        assert (block["name"], block["confidence"]) == (name, "high"), at


# ---- threads that wait in the same functions ----

WAITING = r"""
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
struct item { struct item *none; long a[2]; };
struct job { struct job *none; long a[4]; };
struct note { struct note *none; long a[6]; };
static pthread_barrier_t met;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *out;
static void *made(size_t size, const char *type)
{
    void *block = calloc(1, size);
    pthread_mutex_lock(&lock);
    fprintf(out, "\"%p\": \"%s\", ", block, type);
    pthread_mutex_unlock(&lock);
    return block;
}
__attribute__((noipa)) static void rest(void *one, void *other)
{
    pthread_barrier_wait(&met);
    for (;;) pause();
}
__attribute__((noipa)) static void descend(size_t depth, size_t room)
{
    char space[room];
    struct job *own = made(sizeof *own, "struct job"); /* as far from the frame's base in each, not from its end */
    if (depth)
        descend(depth - 1, room);
    rest(&own, space);
}
static void *work(void *given)
{
    struct item *held = made(sizeof *held, "struct item");
    struct note *kept = made(sizeof *kept, "struct note"); /* in a register */
    descend((size_t)given % 3, (size_t)given * 32);
    rest(&held, kept);
    return kept;
}
int main(int argc, char **argv)
{
    out = fopen(argv[1], "w");
    fputs("{\"blocks\": {", out);
    pthread_barrier_init(&met, NULL, 13);
    for (size_t i = 0; i < 12; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, work, (void *)i);
    }
    pthread_barrier_wait(&met);
    fputs("\"0x0\": \"\"}}", out);
    fclose(out);
    raise(SIGTRAP);
    return argc;
}
"""


def test_locals_of_threads_in_the_same_functions_say_what_each_has(tmp_path):
    try:
        gdbrun.gdb_program()
    except Unavailable as reason:
        pytest.skip(str(reason))
    words = ["gcc", "-g", "-O1", "-pthread", "-x", "c", "-", "-o", str(tmp_path / "waiting")]
    subprocess.run(words, input=WAITING, text=True, check=True)
    waiting = Zoo(tmp_path / "waiting", tmp_path)
    said = {int(one["address"], 16): (one["name"], one["confidence"]) for one in waiting.listed}
    truth = {int(at, 16): (name, "high") for at, name in waiting.truth["blocks"].items() if name}
    assert len(truth) == 12 * 2 + 4 * (1 + 2 + 3)
    assert {at: said[at] for at in truth} == truth
