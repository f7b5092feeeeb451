"""Shapes of libstdc++, GLib, systemd and khash against the real containers, and what they say of themselves.

Each program fills containers, asks the library for size, elements and bins, writes that down, breaks some, and
is walked once, live and as gdb's core of it.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import gdbrun, preloaded
from tests.support.cache import CHECKOUT
from tests.support.glibcs import Unavailable

SOURCES = CHECKOUT / "tests" / "containers"
WALKS = Path(__file__).parent / "data" / "walk_containers.py"
FLAGS = ("-g", "-O0", "-Wall", "-Wextra", "-Werror")


def flags_of_glib():
    if not shutil.which("pkg-config"):
        pytest.skip("no pkg-config on this machine")
    done = subprocess.run(["pkg-config", "--cflags", "--libs", "glib-2.0"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip("no headers of GLib on this machine (Debian's libglib2.0-dev)")
    return shlex.split(done.stdout)


def systemd_library():
    found = sorted(Path("/usr/lib").glob("**/systemd/libsystemd-shared-*.so"))
    if not found:
        pytest.skip("no shared library of systemd on this machine (Debian's libsystemd-shared)")
    return str(found[-1])


def compiled(source, folder, *flags):
    """Compile one of the programs, or skip the test."""
    compiler = "g++" if source.endswith(".cc") else "gcc"
    if not shutil.which(compiler):
        pytest.skip(f"test programs need {compiler}")
    program = folder / source.partition(".")[0]
    done = subprocess.run(
        [compiler, *FLAGS, str(SOURCES / source), "-o", str(program), *flags], capture_output=True, text=True
    )
    if "khash.h: No such file" in done.stderr:
        pytest.skip("no khash.h on this machine (Debian's libhts-dev)")
    assert done.returncode == 0, done.stderr
    return program


class Looked:
    """A program at its interesting point.

    :ivar truth: what the library says of each container in the core, by name.
    """

    def __init__(self, program, folder, *arguments):
        self.program = program
        self.folder = folder
        self.core = folder / "core"
        self._arguments = " ".join(arguments)
        output = self.gdb_live(f"generate-core-file {self.core}")
        if not self.core.exists():
            pytest.skip(f"the program cannot run here: {output}")
        self.truth = self._read_truth()

    def gdb_live(self, *commands):
        run = f"run {self.folder / 'truth.json'} {self._arguments}"
        return self._gdb([str(self.program)], ["break interesting", run, *commands])

    def gdb_core(self, *commands):
        return self._gdb([str(self.program), str(self.core)], commands)

    def _gdb(self, files, commands):
        words = [word for command in commands for word in ("-ex", command)]
        return preloaded.run_gdb([*files, *gdbrun.load_pack(), *words])

    def _read_truth(self):
        return json.loads((self.folder / "truth.json").read_text())

    def walks_all(self, live):
        """Return what the API says of each container, and what the library says; each run has its own."""
        answers = self.walks(self.truth, live)
        return answers, self._read_truth() if live else self.truth

    def walks(self, lines, live=False):
        """Return what the API says of each line (EXPR, or SHAPE: EXPR)."""
        asked, answers = self.folder / "asked", self.folder / "answers.json"
        asked.write_text("\n".join(lines))
        answers.unlink(missing_ok=True)
        names = (f'set $asked = "{asked}"', f'set $answers = "{answers}"')
        output = (self.gdb_live if live else self.gdb_core)(*names, f"source {WALKS}")
        assert answers.exists(), str(output)
        assert "Traceback" not in output.out + output.err.replace("Exception ignored", ""), str(output)
        return json.loads(answers.read_text())

    def commands(self, *commands):
        """Return the envelopes of commands."""
        files = [self.folder / f"command-{at}.json" for at in range(len(commands))]
        output = self.gdb_core(*(f"{command} --json={file}" for command, file in zip(commands, files)))
        return [gdbrun.read_envelope(file, output) for file in files]


def looked_at(tmp_path_factory, source, flags=(), arguments=()):
    try:
        gdbrun.gdb_program()
    except Unavailable as reason:
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp(source.replace(".", "-"))
    return Looked(compiled(source, folder, *flags), folder, *arguments)


@pytest.fixture(scope="module")
def cxx(tmp_path_factory):
    return looked_at(tmp_path_factory, "cxx.cc")


@pytest.fixture(scope="module")
def glib(tmp_path_factory):
    return looked_at(tmp_path_factory, "glib.c", flags_of_glib())


@pytest.fixture(scope="module")
def systemd(tmp_path_factory):
    return looked_at(tmp_path_factory, "systemd.c", ("-ldl",), (systemd_library(),))


@pytest.fixture(scope="module", params=["header", "model"])
def khash(request, tmp_path_factory):
    return looked_at(tmp_path_factory, "khash.c", ("-DMODEL",) if request.param == "model" else ())


# ---- libstdc++ ----

CXX_SHAPES = {
    "list": "std-list",
    "items": "std-list",
    "forward": "std-forward-list",
    "map": "std-map",
    "set": "std-map",
    "multimap": "std-map",
    "multiset": "std-map",
    "typedef": "std-map",
    "floor": "std-map",
    "umap": "std-unordered-map",
    "uset": "std-unordered-map",
    "umultiset": "std-unordered-map",
    "weak": "std-unordered-map",
    "plain": "std-unordered-map-uncached",
    "umultimap": "std-unordered-map-uncached",
}


@pytest.mark.parametrize("live", [True, False], ids=["live", "core"])
def test_containers_of_libstdcxx(cxx, live):
    answers, truths = cxx.walks_all(live)
    for name, truth in truths.items():
        answer = answers[name]
        assert answer["shape"] == CXX_SHAPES[name.partition("_")[0]], name
        assert answer["entries"] in (truth["size"], None), name
        assert (answer["entries"] is None) == name.startswith("forward"), name
        assert answer["problems"] == [], name
        if "bins" in truth:
            assert answer["bins"] == truth["bins"], name
            assert sorted(answer["elements"]) == sorted(truth["elements"]), name
        else:
            assert answer["elements"] == truth["elements"], name
            assert answer["end"] in ("null", "head"), name


def test_elements_of_libstdcxx_have_their_type(cxx):
    answers = cxx.walks(["items_many", "plain_umap_one", "forward_items_many", "multiset_many"])
    names = {name: answer["element_type"] for name, answer in answers.items()}
    assert all(name.endswith("::value_type") for name in names.values())
    shown = cxx.gdb_core(*(f"whatis *({name} *) 0" for name in names.values())).out.splitlines()
    assert shown[-4:] == [f"type = {name}" for name in names.values()]


DAMAGED_CXX = {
    "damaged_list": ("cycle", 50),
    "damaged_forward": ("bad-pointer", 50),
    "damaged_map": ("bad-pointer", 100),
    "cyclic_map": ("cycle", 100),
    "garbage_list": ("decode-error", 0),
    "*garbage_map": ("decode-error", 0),
}


def test_damaged_containers_of_libstdcxx_end_and_say_why(cxx):
    answers = cxx.walks([*DAMAGED_CXX, "damaged_umap", "cyclic_umap", "garbage_umap"])
    for name, (end, count) in DAMAGED_CXX.items():
        assert (answers[name]["end"], len(answers[name]["elements"])) == (end, count), name
        assert answers[name]["problems"], name
    assert answers["damaged_umap"]["ends"] == ["bad-pointer"]
    assert len(answers["damaged_umap"]["elements"]) < 100
    assert answers["cyclic_umap"]["ends"] == ["cycle"]
    assert answers["garbage_umap"]["error"].endswith(
        "it cannot have 11936128518282651045 bins; it is no such object, uninitialised, or damaged"
    )


def test_lists_of_the_old_abi_of_libstdcxx(tmp_path_factory):
    old = looked_at(tmp_path_factory, "cxx.cc", ("-D_GLIBCXX_USE_CXX11_ABI=0",))
    names = ("list_empty", "list_one", "list_many", "items_many")
    for name, answer in old.walks(names).items():
        assert (answer["shape"], answer["entries"], answer["end"]) == ("std-list-old", None, "head"), name
        assert (answer["elements"], answer["problems"]) == (old.truth[name]["elements"], []), name


def test_commands_on_containers_of_libstdcxx(cxx):
    names = ("map_many", "list_many", "umap_many", "weak_umap_many")
    for name, envelope in zip(names, cxx.commands(*(f"walklist {name} --check" for name in names))):
        (table,) = envelope["data"]["tables"]
        assert (table["walked"], table["entries"]) == (cxx.truth[name]["size"],) * 2, name
        assert (envelope["problems"], envelope["complete"]) == ([], True), name
    (skew,) = cxx.commands("slabskew weak_umap_many")
    (table,) = skew["data"]["tables"]
    assert table["max_len"] == max(cxx.truth["weak_umap_many"]["bins"])
    assert table["distinct_hashes"] == 2


# ---- GLib ----


def test_lists_of_glib(glib):
    lists = {name: truth for name, truth in glib.truth.items() if "elements" in truth}
    answers = glib.walks(lists)
    for name, truth in lists.items():
        kind = {"list": "glib-list", "slist": "glib-slist", "queue": "glib-queue"}[name.partition("_")[0]]
        assert (answers[name]["shape"], answers[name]["end"]) == (kind, "null"), name
        assert answers[name]["elements"] == truth["elements"], name
        assert answers[name]["entries"] == (truth["size"] if kind == "glib-queue" else None), name
        assert answers[name]["problems"] == [], name


def largest_prime_below(number):
    return next(n for n in range(number - 1, 0, -1) if all(n % d for d in range(2, int(n**0.5) + 1)))


def steps_to(home, slot, slots):
    """Count the steps of 1, 2, 3 … slots from one to the other."""
    steps = 0
    while home != slot:
        steps += 1
        home = (home + steps) % slots
    return steps


@pytest.mark.parametrize("live", [True, False], ids=["live", "core"])
def test_hash_tables_of_glib(glib, live):
    answers, truths = glib.walks_all(live)
    tables = {name: truth for name, truth in truths.items() if "keys" in truth}
    for name, truth in tables.items():
        answer, slots = answers[name], len(answers[name]["bins"])
        assert (answer["shape"], answer["entries"], answer["problems"]) == (
            "glib-hash-table",
            truth["size"],
            [],
        )
        rows = sorted(
            zip(answer["slots"], answer["keys"], answer["hashes"], answer["homes"], answer["distances"])
        )
        # A hash of 0 or 1 is stored as 2.
        assert [[key, value] for _, key, value, _, _ in rows] == [
            [key, max(value, 2)] for key, value in truth["keys"]
        ], name
        for slot, _, value, home, distance in rows:
            assert home == (value * 11 & 0xFFFFFFFF) % largest_prime_below(slots), name
            assert distance == steps_to(home, slot, slots), name
        assert answer["bins"] == [answer["homes"].count(slot) for slot in range(slots)], name
    assert max(answers["weak_many"]["bins"]) == 67  # 200 keys, three hashes


def test_damaged_structures_of_glib_end_and_say_why(glib):
    answers = glib.walks(["damaged_list", "cyclic_slist", "garbage_table", "damaged_table"])
    assert (answers["damaged_list"]["end"], len(answers["damaged_list"]["elements"])) == ("bad-pointer", 50)
    assert len(answers["damaged_list"]["problems"]) == 2
    assert (answers["cyclic_slist"]["end"], len(answers["cyclic_slist"]["elements"])) == ("cycle", 100)
    assert "does not hold" in answers["garbage_table"]["error"]
    assert "0xdead0000 on cannot be: nothing is mapped there" in answers["damaged_table"]["error"]


def test_commands_on_hash_tables_of_glib(glib):
    walk, skew, garbage = glib.commands(
        "walklist string_many --check", "slabskew weak_many", "walklist garbage_table"
    )
    assert walk["data"]["tables"][0]["walked"] == glib.truth["string_many"]["size"]
    assert (walk["problems"], walk["complete"]) == ([], True)
    assert skew["data"]["tables"][0]["distinct_hashes"] == 3
    assert garbage["error"]["kind"] == "shape"


# ---- systemd ----


@pytest.mark.parametrize("live", [True, False], ids=["live", "core"])
def test_hash_maps_of_systemd(systemd, live):
    answers, truths = systemd.walks_all(live)
    for name, truth in truths.items():
        answer = answers[name]
        assert (answer["shape"], answer["entries"]) == ("systemd-hashmap", truth["size"]), name
        assert len(answer["bins"]) == truth["buckets"], name
        by_slot = [key for _, key in sorted(zip(answer["slots"], answer["keys"]))]
        if name.startswith("ordered"):  # its iterator goes by age
            assert sorted(by_slot) == sorted(truth["keys"]), name
        else:
            assert by_slot == truth["keys"], name
        assert answer["problems"] == [], name


def test_robin_hood_distances_of_systemd(systemd):
    answers = systemd.walks(["map_many", "map_same", "map_overflow"])
    # What was put in with one hash stands side by side, from one bucket on.
    same = answers["map_same"]
    assert sorted(same["distances"]) == list(range(100)) and set(same["homes"]) == {same["homes"][0]}
    assert max(same["bins"]) == 100
    # A byte holds them: from 253 on they all look alike.
    assert sorted(answers["map_overflow"]["distances"]) == [*range(253), *[253] * 147]
    many = answers["map_many"]
    at = dict(zip(many["slots"], many["distances"]))
    for slot, distance in at.items():  # nobody is farther from home than the one before it by more than 1
        assert distance <= at.get((slot - 1) % len(many["bins"]), -1) + 1


def test_garbage_is_no_map_of_systemd(systemd):
    assert "does not hold" in systemd.walks(["garbage_map"])["garbage_map"]["error"]


# ---- khash ----


def test_tables_of_khash(khash):
    answers = khash.walks(khash.truth)
    for name, truth in khash.truth.items():
        answer = answers[name]
        assert (answer["shape"], answer["entries"]) == ("khash", truth["size"]), name
        assert (len(answer["bins"]), answer["distances"], answer["problems"]) == (truth["buckets"], None, [])
        assert sorted(map(list, zip(answer["slots"], answer["keys"]))) == truth["slots"], name


def test_homes_of_integer_khash_tables(khash):
    names = ["prices_empty", "prices_many", "prices_removed", "prices_weak"]
    hashes = {"khash-int": lambda key: key, "khash-int64": lambda key: key >> 33 ^ key ^ key << 11}
    lines = [*(f"khash-int: {name}" for name in names), "khash-int64: orders_many"]
    for line, answer in khash.walks(lines).items():
        slots, hash_of = len(answer["bins"]), hashes[line.partition(":")[0]]
        for slot, key, home, distance in zip(
            answer["slots"], answer["keys"], answer["homes"], answer["distances"]
        ):
            assert home == hash_of(key) % slots and distance == steps_to(home, slot, slots), line
        assert answer["problems"] == [], line


def test_damaged_tables_of_khash_are_one_error(khash):
    answers = khash.walks(["garbage_prices", "damaged_prices", "huge_prices"])
    assert "does not hold" in answers["garbage_prices"]["error"]
    assert "0xdead0000 on cannot be: nothing is mapped there" in answers["damaged_prices"]["error"]
    assert "bytes are mapped there" in answers["huge_prices"]["error"]
