"""Expressions, types and variables as the bridge finds them. The oracle is what the programs print of themselves."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.gdb.bridged import DATA, need_gdb, python
from tests.support.gdbrun import load_pack
from tests.support.preloaded import run_gdb

MAIN, WORKER = ["thread 1", "frame 0"], ["thread 2", "frame 0"]


def compile_(folder, name, *sources, compiler="gcc", flags=()):
    objects = []
    for source, options in sources:
        objects.append(folder / f"{source}.o")
        command = [compiler, "-Wall", "-g", *options, "-c", str(DATA / source), "-o", str(objects[-1])]
        subprocess.run(command, check=True)
    subprocess.run([compiler, "-pthread", *map(str, objects), *flags, "-o", str(folder / name)], check=True)
    return folder / name


class Asked:
    """A program stopped in ``ready``, and what it said of itself."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.truth = {}  # once it has been asked

    def ask(self, *requests, before=(), after=()):
        """Return the answer of each request; gdb runs the program without address randomisation each time."""
        (self.folder / "requests.json").write_text(json.dumps(requests))
        script = f"REQUESTS = {str(self.folder / 'requests.json')!r}\n" + (DATA / "ask_locate.py").read_text()
        commands = ["break ready", f"run > {self.folder / 'truth.json'}", *before]
        arguments = [str(self.program), *load_pack()]
        for command in (*commands, python(self.folder / "ask.py", script), *after, "kill"):
            arguments += ["-ex", command]
        output = run_gdb(arguments)
        assert "Traceback" not in output.err, output
        line = next((line for line in output.out.splitlines() if line.startswith("ANSWERS ")), None)
        assert line, output
        self.truth = json.loads((self.folder / "truth.json").read_text())
        self.output = output
        return json.loads(line[8:])

    def one(self, *request, before=()):
        """Return the answer of one request, which is no error."""
        [given] = self.ask(request, before=before)
        assert "answer" in given, given
        return given["answer"]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    need_gdb()
    folder = tmp_path_factory.mktemp("locate")
    fast = ("locate_fast.c", ["-O2", "-gdwarf-4", "-gstrict-dwarf"])  # no entry values: dead is optimised out
    return compile_(folder, "locate", ("locate.c", ["-O0"]), ("locate_other.c", ["-O0"]), fast)


@pytest.fixture
def asked(program, tmp_path):
    return Asked(program, tmp_path)


@pytest.fixture
def cplus(tmp_path_factory):
    need_gdb()
    folder = tmp_path_factory.mktemp("cplus")
    return Asked(compile_(folder, "locate", ("locate.cc", ["-O0"]), compiler="g++"), folder)


# Expressions.


@pytest.mark.parametrize("selected", [MAIN, WORKER], ids=["own frame", "libc's frame"])
def test_globals_of_the_executable_whatever_libc_calls_so(asked, selected):
    texts = ["daemon", "daemon->size", "daemon[2].size", "environ", "goals[1].size", "(daemon)->size + 1",
             "holder.inside"]  # fmt: skip
    got = [each["answer"] for each in asked.ask(*(["locate", text] for text in texts), before=selected)]
    truth = asked.truth
    assert [each["value"] for each in got] == [truth["goals"], 1, 3, 77, 2, 2, None]
    assert [each["address"] for each in got][:2] == [truth["daemon"], truth["goals"]]
    assert got[3]["address"] == truth["environ"] and got[6]["address"] == truth["holder"]
    assert got[0]["type"]["name"] == "struct goal *" and got[0]["type"]["target"] == "struct goal"


def test_statics_of_one_name_in_two_files(asked):
    here, there, named = asked.ask(["locate", "twice"], ["locate", "'locate_other.c'::twice"],
                                   ["locate", "'locate.c'::twice + 0"])  # fmt: skip
    assert here["answer"]["address"] == asked.truth["twice"] and here["answer"]["found"] is None
    assert there["answer"]["address"] == asked.truth["other_twice"] and named["answer"]["value"] == 11
    [outside] = asked.ask(["locate", "twice"], before=WORKER)  # which one, gdb does not say; we do
    file = "locate.c" if outside["answer"]["address"] == asked.truth["twice"] else "locate_other.c"
    assert outside["answer"]["found"] == f"static twice of {file}"


def test_a_local_of_another_frame_and_of_another_thread(asked):
    elsewhere, inner = asked.ask(["locate", "only_there"], ["locate", "&only_there + 0"])
    assert elsewhere["answer"]["address"] == asked.truth["locals"][0]
    assert elsewhere["answer"]["found"] == "only_there of frame 3 of thread 2"
    assert inner["answer"]["value"] == asked.truth["locals"][0]
    [third] = asked.ask(["locate", "only_there.size"], before=["thread 3", "frame 1"])  # its own stack first
    assert third["answer"]["value"] == 102 and third["answer"]["found"] == "only_there of frame 3 of thread 3"


def test_a_local_of_another_frame_whatever_libc_calls_so(asked):
    answer = asked.one("locate", "link")
    assert answer["value"] == asked.truth["locals"][0] and answer["found"] == "link of frame 3 of thread 2"


def test_an_optimised_out_variable_is_found_in_its_caller(asked):
    in_fast = ["thread 3", "frame 2"]
    says, found = asked.ask(["gdb", "print worker"], ["locate", "worker->env"], before=in_fast)
    assert "<optimized out>" in says["answer"]
    assert found["answer"]["address"] == asked.truth["workers"][1] + asked.truth["env"]
    assert found["answer"]["found"] == "worker of frame 3 of thread 3"


def test_quotes_around_all_of_it(asked):
    texts = ["'daemon->size + 1'", '"daemon->size"', "'daemon'", "'locate.c'::twice", "'a'"]
    got = [one["answer"]["value"] for one in asked.ask(*(["locate", text] for text in texts))]
    assert got == [2, 1, asked.truth["goals"], 11, ord("a")]


def test_what_needs_no_variable(asked):
    texts = ["0x10", "16", "*(struct goal *) 0x1234", "$sp", "$mine", "&goals[1]", "sizeof(struct goal)", "main"]
    got = [one["answer"] for one in asked.ask(*(["locate", text] for text in texts), before=["set $mine = 5"])]
    assert [each["value"] for each in got[:2]] == [16, 16] and got[0]["type"] is None
    assert got[2]["address"] == 0x1234 and got[2]["type"]["name"] == "struct goal" and got[2]["value"] is None
    assert got[3]["address"] is None and got[3]["value"]
    assert [got[4]["value"], got[6]["value"]] == [5, 16] and got[5]["value"] == asked.truth["goals"] + 16
    assert got[7]["type"]["code"] == "function" and all(each["found"] is None for each in got)


@pytest.mark.parametrize(
    "text, message",
    [
        ("nosuch", "cannot evaluate 'nosuch': No symbol \"nosuch\" in current context; tried the selected frame and "),
        ("daemon->nosuch", "cannot evaluate 'daemon->nosuch': There is no member named nosuch"),
        ("daemon = 0", "'daemon = 0' would assign; "),
        ("ready()", "cannot evaluate 'ready()': Cannot call functions in the program: may-call-functions is off"),
        ("wild->size", "cannot evaluate 'wild->size': Cannot access memory at address 0x10"),
        ("fraction", "cannot evaluate 'fraction': it is no whole number"),
        ("0x10000000000000000", "0x10000000000000000 is beyond any address"),
        ("daemon +", "cannot evaluate 'daemon +': A syntax error in expression, near `'"),
        ("", "an expression is missing"),
    ],
)  # fmt: skip
def test_errors_are_one_line_with_what_was_tried(asked, text, message):
    [given] = asked.ask(["locate", text])
    assert given["error"].startswith(message) and "\n" not in given["error"], given
    if text == "nosuch":
        assert given["error"].endswith("2 frames of 1 thread") or " of 3 threads" in given["error"]


@pytest.mark.parametrize("selected", [MAIN, ["thread 3", "frame 2"], ["thread 2", "frame 1"]])
def test_the_selection_is_the_same_afterwards(asked, selected):
    texts = ["daemon", "only_there", "nosuch", "worker->env", "wild->size", "ready()"]
    requests = [["selection"], *(["locate", text] for text in texts), ["discover", "struct goal", 100, 100_000]]
    given = asked.ask(*requests, before=selected, after=["show convenience"])
    assert len({json.dumps(each["selection"]) for each in given}) == 1
    assert given[0]["selection"][0] == int(selected[0].split()[1]) and given[0]["selection"][3]
    left = [line for line in asked.output.out.splitlines() if line.startswith("$gx_")]
    assert all(line.endswith("= void") or "internal function" in line for line in left), left


def test_a_number_is_evaluated_by_the_same_rules(asked):
    texts = ["daemon", "goals", "only_there.size", "&only_there"]
    given = [each["answer"] for each in asked.ask(*(["evaluate", text] for text in texts), before=WORKER)]
    assert given == [asked.truth["goals"], asked.truth["goals"], 101, asked.truth["locals"][0]]


def test_blocks_at_finds_what_the_selected_frame_does_not_know(asked, tmp_path):
    file = tmp_path / "out.json"
    asked.ask(["selection"], before=["thread 3", "frame 0"], after=[f"blocks at --json={file} worker"])
    answer = json.loads(file.read_text())
    assert hex(asked.truth["workers"][1]) in json.dumps(answer["data"])


def test_symbols_without_debug_info(program, tmp_path):
    stripped = tmp_path / "stripped"
    subprocess.run(["objcopy", "--strip-debug", str(program), str(stripped)], check=True)
    asked = Asked(stripped, tmp_path)
    texts = ["daemon", "goals", "*(long *) &goals", "ready"]
    given = asked.ask(*(["locate", text] for text in texts), ["global", "environ"], ["global", "per_thread"],
                      ["global", "ready"], ["evaluate", "goals"], before=WORKER)  # fmt: skip
    truth = asked.truth
    assert [each["answer"]["address"] for each in given[:3]] == [truth["daemon"], truth["goals"], truth["goals"]]
    assert all(each["answer"]["type"] is None and each["answer"]["value"] is None for each in given[:2])
    assert given[3]["answer"]["type"]["code"] == "function"
    assert given[4]["answer"]["address"] == truth["environ"] and given[4]["answer"]["type"] is None
    assert given[5]["answer"] is None and given[6]["answer"] is None
    assert "type is unknown; cast it" in given[7]["error"]


# Types and globals.


def test_globals(asked):
    names = ["daemon", "environ", "twice", "per_thread", "nosuch", "ready", "nowhere", "wild"]
    given = [each["answer"] for each in asked.ask(*(["global", name] for name in names), before=WORKER)]
    assert given[0]["value"] == asked.truth["goals"] and given[1]["address"] == asked.truth["environ"]
    assert given[2]["address"] in (asked.truth["twice"], asked.truth["other_twice"])
    assert given[3:6] == [None, None, None]
    assert [given[6]["value"], given[7]["value"]] == [0, 0x10]


def test_types(asked):
    names = ["struct goal", "goal", "struct goal *", "nameless", "struct nosuch", "int", "unsigned char",
             "struct goal **"]  # fmt: skip
    given = [each["answer"] for each in asked.ask(*(["type", name] for name in names))]
    fields = [["size", 0, "int", None, False], ["next", 8, "struct goal *", None, False]]
    assert given[0] == given[1] and given[0]["fields"] == fields
    assert (given[0]["name"], given[0]["code"], given[0]["size"]) == ("struct goal", "struct", 16)
    assert (given[2]["code"], given[2]["target"], given[2]["size"]) == ("pointer", "struct goal", 8)
    assert given[3]["name"] == given[3]["tag"] == "nameless" and given[3]["fields"][0][0] == "only"
    assert given[4] is None
    assert [given[5]["signed"], given[6]["signed"], given[6]["size"]] == [True, False, 1]
    assert given[7]["name"] == "struct goal **"


def test_integers_that_gdb_does_not_calculate_with(asked):
    given = [each["answer"] for each in asked.ask(["type", "__int128"], ["type", "__int128 unsigned"])]
    assert [(one["code"], one["size"], one["signed"]) for one in given] == [
        ("integer", 16, True),
        ("integer", 16, False),
    ]


def test_types_refer_to_themselves_and_are_made_once(asked):
    assert [each["answer"] for each in asked.ask(["again", "struct goal"], ["own", "struct goal"])] == [True, True]


def test_an_opaque_type_is_that_of_the_other_file(asked):
    incomplete, pointer = asked.ask(["type", "struct opaque"], ["locate", "*'locate.c'::opaque"])
    assert incomplete["answer"]["size"] == pointer["answer"]["type"]["size"] == 16
    assert pointer["answer"]["address"] == asked.truth["opaque"]
    assert [field[0] for field in pointer["answer"]["type"]["fields"]] == ["secret", "next"]


def test_bit_fields_read_as_the_program_wrote_them(asked):
    wanted = {"low": 5, "mid": 0x1234, "wide": 0x9876543210, "negative": -3}
    given = asked.ask(*(["field", "bits", name] for name in wanted))
    assert [each["answer"] for each in given] == list(wanted.values())
    packed = asked.ask(["field", "packed", "odd"], ["field", "packed", "rest"])
    assert [each["answer"] for each in packed] == [-70000, 0x3F]


def test_arrays_unions_and_anonymous_members(asked):
    flexible, holder, matrix = asked.ask(["locate", "flexible->items"], ["type", "struct holder"], ["locate", "matrix"])
    assert flexible["answer"]["type"]["length"] is None and flexible["answer"]["type"]["code"] == "array"
    assert matrix["answer"]["type"]["length"] == 3
    assert [field[:2] for field in holder["answer"]["fields"]] == [["inside", 0], ["many", 16], ["", 48]]


def test_cplusplus(cplus):
    names = ["box::Derived::shared", "box::hidden", "box::hidden.held", "box::unnamed", "reference", "plain",
             "'locate.cc'::plain", "*(box::Derived *) 0x1000"]  # fmt: skip
    given = [each["answer"] for each in cplus.ask(*(["locate", name] for name in names))]
    truth = cplus.truth
    assert [each["address"] for each in given] == [
        truth["shared"], truth["hidden"], truth["hidden"], truth["unnamed"], truth["plain"], truth["plain"],
        truth["plain"], 0x1000,
    ]  # fmt: skip
    assert given[2]["value"] == 42 and given[1]["type"]["name"] == "box::Holder<int>"
    derived = given[0]["type"]
    assert derived["name"] == "box::Derived" and derived["size"] == truth["size"]
    places = {field[0]: (field[1], field[4]) for field in derived["fields"]}
    assert places["box::Base"] == (truth["base"], True) and places["box::Second"] == (truth["second"], True)
    assert places["own"] == (truth["own"], False) and "shared" not in places


def test_cplusplus_types_by_name(cplus):
    names = ["Plain", "struct Plain", "box::Derived", "box::Holder<int>", "box::Nothing", "Virtual", "box::Derived *"]
    given = [each["answer"] for each in cplus.ask(*(["type", name] for name in names))]
    assert given[0] == given[1] and given[0]["fields"] == [["plain", 0, "int", None, False]]
    assert given[3]["fields"] == [["held", 0, "int", None, False]] and given[4] is None
    assert "Plain" not in [field[0] for field in given[5]["fields"]]  # a virtual base is at no fixed offset
    assert given[6]["target"] == "box::Derived"


def test_cplusplus_names_in_a_frame_of_c(cplus):
    given = cplus.ask(["locate", "box::hidden.held"], ["locate", "plain"], ["global", "box::hidden"],
                      before=["set language c"])  # fmt: skip
    assert given[0]["answer"]["value"] == 42 and given[2]["answer"]["address"] == cplus.truth["hidden"]


def test_cplusplus_variables_are_found_by_names_that_can_be_typed(cplus):
    tagged = "Found<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > >"
    asks = [["discover", kind, 9, 9000] for kind in (tagged, "box::Holder<int>")]
    given = [each["answer"] for each in cplus.ask(*asks)]
    assert [each["text"] for each in given[0]["found"]] == ["tagged"]
    assert [each["text"] for each in given[1]["found"]] == ["box::hidden"]


# Discovery.


def test_variables_are_found_breadth_first_and_can_be_typed(asked):
    [given] = asked.ask(["discover", "struct goal", 100, 100_000])
    found = given["answer"]["found"]
    truth, pointed = asked.truth, {each["text"]: each["value"] or each["address"] for each in found}
    assert given["answer"]["complete"] and len(set(pointed.values())) == len(pointed)
    assert pointed["goals[0]"] == truth["goals"] or pointed["daemon"] == truth["goals"]
    assert pointed["goals[2]"] == truth["goals"] + 32
    assert pointed["holder.inside"] == truth["holder"] and "holder.many[1]" in pointed
    assert pointed["only_there"] == truth["locals"][0] and pointed["first->env.pointed"] == truth["pointed"]
    assert pointed["first->env.goal"] == truth["workers"][0] + truth["goal"]
    assert pointed["far_away.a.b.goal"] == truth["near"] and truth["far"] not in pointed.values()
    assert not {"nowhere", "wild", "holder.either"} & set(pointed)
    other = [each for each in found if each["address"] == truth["locals"][1]]  # the name means the first one
    assert other[0]["text"] == f"*(struct goal *) {truth['locals'][1]:#x}"
    assert other[0]["found"] == "only_there in frame 3 of thread 3"
    texts = list(pointed)
    assert texts.index("daemon" if "daemon" in texts else "goals[0]") < texts.index("first->env.pointed")


def test_discovery_is_bounded(asked):
    few, none, quick = asked.ask(["discover", "struct goal", 3, 100_000], ["discover", "struct nosuch", 10, 100_000],
                                 ["discover", "struct goal", 100, 0])  # fmt: skip
    assert len(few["answer"]["found"]) == 3 and not few["answer"]["complete"]
    assert none["answer"]["found"] == [] and none["answer"]["complete"]
    assert not quick["answer"]["complete"]
    halves = asked.ask(*[["discover", "struct goal", 100, most] for most in (5, 20, 40, 5, 20, 40)])
    assert halves[:3] == halves[3:]  # what is counted comes as far each time


# Elements.


def test_elements_are_shown_by_gdb(asked):
    asked.ask(["selection"])
    goals = asked.truth["goals"]
    asks = [
        ["elements", "show", goals, "struct goal", ["size", "next", "nosuch", "next->size", "$elem + 1", "&size",
                                                  "/x size", "/t $elem->size + 1"]],
        ["elements", "show", goals, "struct goal", []],
        ["elements", "show", 0x10, "struct goal", ["size"]],
        ["elements", "show", 0x10, "struct goal", []],
        ["elements", "show", goals, None, ["size", "*(int *) $elem"]],
        ["elements", "show", goals, "struct nosuch", []],
    ]
    fields, whole, bad, bad_whole, untyped, unknown = (each["answer"] for each in asked.ask(*asks))
    assert fields[0] == "1" and fields[1] == "0x0" and fields[2].startswith("? (There is no member named nosuch")
    assert fields[3].startswith("<cannot read 0x") and "goals+16" in fields[4] and fields[5].endswith("<goals>")
    assert fields[6:] == ["0x1", "10"]
    assert whole == ["{size = 1, next = 0x0}"] and bad == ["<cannot read 0x10>"]
    assert "cannot read 0x10" in bad_whole[0] or "Cannot access memory at address 0x10" in bad_whole[0]
    assert untyped[0].startswith("? (") and untyped[1] == "1" and unknown == [hex(goals)]


def test_commands_run_for_an_element(asked):
    goals = asked.ask(["selection"]) and asked.truth["goals"]
    given = asked.ask(
        ["elements", "run", "output $elem->size", goals, "struct goal"],
        ["elements", "run", "nosuchcommand", goals, "struct goal"],
        ["elements", "run", "thread 2", goals, None],
        ["elements", "run", "output/x $elem", 0x1234, None],
    )
    answers = [each["answer"] for each in given]
    assert answers[0] == "1" and answers[1].startswith('error: Undefined command: "nosuchcommand"')
    assert answers[3] == "0x1234" and given[2]["selection"] == given[0]["selection"]


def test_conditions_on_an_element(asked):
    goals = asked.ask(["selection"]) and asked.truth["goals"]
    texts = ["$elem->size == 1", "$elem->size > 1", "$elem->next->size", "ready()", "nosuch"]
    given = asked.ask(*(["elements", "test", text, goals, "struct goal"] for text in texts),
                      ["elements", "test", "$elem->size = 3", goals, "struct goal"],
                      ["elements", "check", "nosuch", goals, "struct goal"], ["locate", "goals[0].size"])  # fmt: skip
    assert [each.get("answer") for each in given[:5]] == [True, False, None, None, None]
    assert "would assign" in given[5]["error"] and given[7]["answer"]["value"] == 1
    assert given[6]["error"].endswith("'nosuch': No symbol \"nosuch\" in current context; $elem is the element")
    assert all(each["selection"][3] for each in given)  # calls are allowed again


# Shapes.

OWN = """
name = "%s"
summary = "%s"
kind = "list"
types = ["struct goal"]
[list]
first = "self"
[node]
next = "next"
"""
SUMMARIES = """
from gdbext.starting import dependencies
dependencies.load()
from gdbext.bridge.stops.session import read_shapes
known = read_shapes()
print("SHAPES", [known.shapes[name].summary for name in ("own", "unbound-lruhash") if name in known.shapes],
      known is read_shapes(), len(known.problems))
"""


def test_shapes_of_the_pack_and_of_the_users_folder(tmp_path):
    need_gdb()
    own = tmp_path / "shapes"
    own.mkdir()
    (own / "own.toml").write_text(OWN % ("own", "first"))
    (own / "other.toml").write_text(OWN % ("unbound-lruhash", "mine rules"))
    (tmp_path / "second.toml").write_text(OWN % ("own", "second, longer"))
    tell = python(tmp_path / "tell.py", SUMMARIES)
    commands = ["show gx shapes-folder", "set gx shapes-folder", tell, f"set gx shapes-folder {own}", tell,
                f"shell cp {tmp_path / 'second.toml'} {own / 'own.toml'}", tell,
                f"shell echo broken > {own / 'own.toml'}", tell, f"set gx shapes-folder {tmp_path / 'nosuch'}", tell,
                "show gx shapes-folder"]  # fmt: skip
    arguments = load_pack()
    for command in commands:
        arguments += ["-ex", command]
    output = run_gdb(arguments)
    told = [line for line in output.out.splitlines() if line.startswith("SHAPES ")]
    assert told, output
    pack = told[0].split("[")[1].split("]")[0]
    assert told == [
        f"SHAPES [{pack}] True 0",
        "SHAPES ['first', 'mine rules'] True 0",
        "SHAPES ['second, longer', 'mine rules'] True 0",
        "SHAPES ['mine rules'] True 1",
        f"SHAPES [{pack}] True 0",
    ], output
    assert "~/.config/gdbext/shapes" in output.out.splitlines()[0] and str(tmp_path / "nosuch") in output.out
