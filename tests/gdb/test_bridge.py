"""The bridge: commands and their errors, the target as gdb has it, and no trace left in it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.gdb.bridged import PROBES, Running, build, need_gdb, python
from tests.gdb.test_errors import ALL
from tests.support import preloaded
from tests.support.gdbrun import gdb_version, kill_group, load_pack, run_gdb
from tests.support.rest import wait_for_rest, wait_until


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    need_gdb()
    return build(tmp_path_factory.mktemp("bridge"))


@pytest.fixture(scope="module")
def running(program):
    process = Running(program)
    yield process
    process.close()


@pytest.fixture(scope="module")
def core(running, tmp_path_factory):
    path = tmp_path_factory.mktemp("core") / "core.bridge"
    run_gdb(["-p", str(running.pid), "-ex", f"gcore {path}"])
    assert path.exists()
    return path


@pytest.fixture
def remote(running):
    """The arguments that make gdb look at the running program through gdbserver."""
    if not shutil.which("gdbserver"):
        pytest.skip("no gdbserver on this machine")
    server = subprocess.Popen(
        ["gdbserver", "--once", "--attach", "127.0.0.1:0", str(running.pid)],
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    port = next(line.split()[-1] for line in server.stderr if line.startswith("Listening"))
    yield ["-iex", "set sysroot /", "-ex", f"target remote 127.0.0.1:{port}"]
    server.terminate()
    server.wait(10)
    server.stderr.close()
    status = Path(f"/proc/{running.pid}/status")
    wait_until(lambda: "TracerPid:\t0\n" in status.read_text(), "gdbserver lets go")
    wait_for_rest(running.pid)


@pytest.fixture(params=["live", "core", "remote"])
def options(request, running, program):
    if request.param == "live":
        return ["-p", str(running.pid)]
    if request.param == "core":
        return [str(program), str(request.getfixturevalue("core"))]
    return request.getfixturevalue("remote")


def ask(options, *commands, before=()):
    arguments = [*options]
    for command in before:
        arguments += ["-ex", command]
    arguments += [*load_pack(), *PROBES]
    for command in commands:
        arguments += ["-ex", command]
    return preloaded.run_gdb(arguments)


def told(output):
    """Return the lines that gdbext has written to standard error."""
    assert "Traceback" not in output.err, output
    return [line for line in output.err.splitlines() if line.startswith("gdbext: ")]


def envelope(output):
    line = next(line for line in output.out.splitlines() if line.startswith('{"schema"'))
    return json.loads(output.out[output.out.index(line) :])


NOTHING = "there is no process and no core; attach PID, run, or core-file CORE"


# Errors: one line each, with what to do.


@pytest.mark.parametrize(
    "command, message",
    [
        ("probe evaluate x", f"probe evaluate: {NOTHING}"),
        ("probe evaluate --lmit 3", "probe evaluate: unknown option --lmit; did you mean --limit?"),
        ("probe evaluate --size", "probe evaluate: --size needs a value; write --size SIZE"),
        ("gx commands what", "gx commands: takes no argument, got 'what'; -h shows how it is written"),
        ("gx comands", "gx: no command 'comands'; did you mean gx commands?"),
        ("gx xyzzy", "gx: no command 'xyzzy'; help gx lists them"),
        ("gx safe", "gx safe: a command is missing; gx safe COMMAND"),
        ("probe interrupted", "probe interrupted: interrupted"),
        ("probe refused", 'probe refused: No symbol table is loaded. Use the "file" command'),
        ("probe evaluate --json=/nonexistent/file 1",
         "probe evaluate: cannot write /nonexistent/file: No such file or directory; name another file"),
        ("set gx min-finding-bytes many",
         "set gx min-finding-bytes: 'many' is not a size; write bytes, or a number with K, M or G"),
        ("set gx colour", "set gx: no setting 'colour'; there are min-finding-bytes, "),
        ("show gx colour", "show gx: no setting 'colour'; there are min-finding-bytes, "),
    ],
)  # fmt: skip
def test_faults_are_one_line(command, message):
    output = ask([], command)
    assert len(told(output)) == 1, output
    assert told(output)[0].startswith("gdbext: " + message), output


@pytest.mark.parametrize(
    "expression, message",
    [
        ("", "an expression is missing; -h shows how it is written"),
        ("nosuch", "cannot evaluate 'nosuch': No symbol \"nosuch\" in current context"),
        ("*(long *) 8", "cannot evaluate '*(long *) 8': Cannot access memory at address 0x8"),
        (
            "touch(1)",
            "cannot evaluate 'touch(1)': Cannot call functions in the program: may-call-functions is off",
        ),
        ("probe.sign = 3", "'probe.sign = 3' would assign; gdbext never writes"),
        ("called++", "'called++' would assign"),
        ("called <<= 2", "'called <<= 2' would assign"),
        ("1 +", "cannot evaluate '1 +': A syntax error in expression, near `'"),
        ("(struct probe) 0", "cannot evaluate"),
        ("$nothing", "cannot evaluate '$nothing': it has no value"),
    ],
)
def test_expressions_are_refused_in_one_line(core, program, expression, message):
    output = ask([program, core], f"probe evaluate {expression}")
    assert len(told(output)) == 1 and told(output)[0].startswith("gdbext: probe evaluate: " + message), output


@pytest.mark.parametrize(
    "expression, value",
    [
        ("0x10", 0x10),
        ("1 == 1 && 2 >= 1 && 1 != 2", 1),
        ("-1", (1 << 64) - 1),
        ("&secret", "secret"),
        ("probe", "probe"),
        ("probe.words", lambda truth: truth["probe"] + truth["words"]),
        ("&probe.nested", lambda truth: truth["probe"] + truth["nested"]),
        ("secret", 42),
        ("touch == 0", 0),
        ("text[0] == '='", 0),
    ],
)
def test_expressions(core, program, running, expression, value):
    output = ask([program, core], f"probe evaluate --json {expression}")
    if callable(value):
        value = value(running.truth)
    assert int(envelope(output)["data"]["address"], 16) == running.truth.get(value, value), output


@pytest.mark.parametrize(
    "command, kind",
    [("probe fault", "fault"), ("probe evaluate --lmit", "usage"), ("probe interrupted", "interrupted"),
     ("probe refused", "debugger"), ("probe bug", "internal")],
)  # fmt: skip
def test_errors_have_an_envelope(tmp_path, core, program, command, kind):
    path = tmp_path / "out.json"
    output = ask([program, core], f"{command} --json={path}")
    document = json.loads(path.read_text())
    assert document["data"] is None and document["error"]["kind"] == kind
    assert document["schema"] == f"gdbext/{'-'.join(command.split()[:2])}/2"
    assert "gdbext: probe " in output.err
    assert envelope(ask([], f"{command} --json"))["error"]["message"]


def test_without_a_target_the_envelope_says_so():
    document = envelope(ask([], "probe evaluate --json x"))
    assert document["error"] == {
        "kind": "no-target",
        "message": "there is no process and no core",
        "hint": "attach PID, run, or core-file CORE",
    }


def test_our_own_defects_are_tracebacks():
    output = ask([], "probe bug")
    assert "Traceback" in output.err and "KeyError: 'nothing'" in output.err
    assert output.err.splitlines()[-1].startswith("gdbext: probe bug: KeyError: 'nothing'; please report")


def test_a_fault_while_rows_are_printed_is_one_line():
    output = ask([], "probe broken-rows")
    assert told(output) == ["gdbext: probe broken-rows: cannot read 4 bytes of row at 0x20"]


# Output.


def test_text_json_and_file_agree(tmp_path, core, program):
    path = tmp_path / "out.json"
    output = ask(
        [program, core],
        "probe evaluate 0x10",
        f"probe evaluate --json={path} 0x10",
        "probe evaluate 0x10 --json",
    )
    document = json.loads(path.read_text())
    assert document == envelope(output)
    assert document["data"]["address"] == "0x10" and document["target"]["core"] == str(core)
    assert "0x10" in output.out.split("{")[0]


def test_output_can_be_captured(tmp_path, core, program):
    capture = python(
        tmp_path / "c.py", "import gdb\nprint(repr(gdb.execute('probe evaluate 0x10', to_string=True)))"
    )
    assert "0x10" in ask([program, core], capture).out


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help(flag):
    output = ask([], f"gx commands {flag}", f"probe evaluate {flag}")
    assert "Usage: gx commands" in output.out and "Example:" in output.out and "--size" in output.out, output


def test_gdbs_own_help(tmp_path):
    output = ask([], "help gx commands", "gx", "help gx")
    assert "Usage: gx commands [OPTION]..." in output.out and output.err == "", output
    assert output.out.count("gx safe -- ") == 2


def test_gx_commands_lists_everything(tmp_path):
    path = tmp_path / "out.json"
    ask([], f"gx commands --json={path}")
    data = json.loads(path.read_text())["data"]
    assert {"gx commands", "gx safe"} <= {row["prefixed"] for row in data["commands"]}
    assert data["gdb"].startswith("%d.%d" % gdb_version())
    assert re.match(r"\d+\.\d+", data["numpy"]) and data["kernels"]


# Safe mode.


def test_safe_records_instead_of_raising():
    output = ask([], "gx safe probe evaluate x", "output $gx_error", "gx safe echo fine\\n",
                 "output $_isvoid($gx_error)")  # fmt: skip
    assert "there is no process" in output.out and output.out.endswith("fine\n1"), output
    assert told(output) == [
        "gdbext: probe evaluate: there is no process and no core; attach PID, run, or core-file CORE"
    ]


def test_safe_leaves_options_to_the_command(tmp_path):
    path = tmp_path / "out.json"
    ask([], f"gx safe gx commands --json={path} --limit 1")
    assert json.loads(path.read_text())["schema"] == "gdbext/commands/2"


def test_the_setting_makes_every_command_safe(program):
    commands = [
        "set gx safe on",
        "break ready",
        "commands 1",
        "probe evaluate nosuch",
        "echo went on\\n",
        "end",
    ]
    script = ["run > /dev/null", "output $gx_error", "probe evaluate 1", "output $_isvoid($gx_error)", "kill"]
    source = program.parent / "safe.gdb"
    source.write_text("\n".join(commands + script) + "\n")
    output = ask([program], f"source {source}")
    assert "went on\n" in output.out and 'nosuch\\": No symbol' in output.out.replace("'", '\\"'), output
    assert "\n1Kill the program" in output.out


def test_without_it_a_command_list_ends_at_the_error(program):
    source = program.parent / "unsafe.gdb"
    source.write_text(
        "break ready\ncommands 1\nprobe evaluate nosuch\necho went on\\n\nend\nrun > /dev/null\nkill\n"
    )
    assert "went on\n" not in ask([program], f"source {source}").out


# Settings and limits.


def test_settings(tmp_path):
    output = ask([], "show gx", "set gx min-finding-bytes 20G", "set gx safe on", "probe settings --json",
                 "set gx min-finding-bytes x", "show gx min-finding-bytes")  # fmt: skip
    assert "gx time-budget: 0" in output.out and "gx safe: off" in output.out
    data = envelope(ask([], "set gx min-finding-bytes 20G", "set gx safe on", "probe settings --json"))[
        "data"
    ]
    assert (int(data["address"], 16), data["target"]) == (20 << 30, 1)
    assert output.out.rstrip().endswith(": 20G"), output


def test_the_time_budget_stops_a_command():
    begun = time.monotonic()
    output = ask([], "set gx time-budget 1", "probe endless")
    assert told(output) == ["gdbext: probe endless: interrupted"]
    assert time.monotonic() - begun < 20


def test_ctrl_c_stops_a_command():
    process = subprocess.Popen(
        ["gdb", "-nx", "-batch", *load_pack(), *PROBES, "-ex", "probe endless"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "counting\n"
        process.send_signal(2)
        assert "gdbext: probe endless: interrupted" in process.communicate(timeout=20)[1]
    finally:
        kill_group(process)


# The target.

SHOW = """
import json
from gdbext.bridge.stops import session
target = session.current().target
symbols = target.symbols
structs = symbols.find_structs('probe')
print('ANSWER', json.dumps({
    'abi': [target.abi.pointer_size, target.abi.byteorder, target.abi.machine, target.abi.page_size],
    'live': target.live, 'local_pid': target.local_pid,
    'exe': target.identity.exe, 'pid': target.identity.pid,
    'build_id': target.identity.build_id,
    'memory': type(target.memory).__name__,
    'regions': [[r.start, r.end, r.permissions, r.name] for r in target.memory.regions()],
    'modules': [[m.path, m.build_id] for m in target.modules],
    'threads': [[t.number, t.lwp, t.name, t.stack_pointer, t.tls, len(t.registers)] for t in target.threads],
    'symbols': {name: [[s.address, s.build_id] for s in symbols.find_symbols(name)]
                for name in ('probe', 'secret', 'per_thread', 'nosuch', 'a b', 'levels', 'main')},
    'structs': [[s.build_id, s.layout.size, {k: [m.offset, m.size, m.count, m.signed]
                 for k, m in s.layout.members.items()}] for s in structs],
    'nothing': len(symbols.find_structs('nosuch')),
    'tls': {t.lwp: symbols.find_tls('per_thread', t) for t in target.threads},
    'no_tls': [symbols.find_tls('nosuch', target.threads[0]), symbols.find_tls('a b', target.threads[0])],
    'names': [symbols.find_name(symbols.find_symbols('secret')[0].address + 2), symbols.find_name(8)],
    'letter': bytes(target.memory.read(symbols.find_symbols('probe')[0].address, 1)).decode(),
    'auxv': target.auxv.get(6),
    'problems': [p.message for p in target.problems],
}))
"""


@pytest.fixture
def answer(options, tmp_path):
    output = ask(options, python(tmp_path / "show.py", SHOW))
    line = [line for line in output.out.splitlines() if line.startswith("ANSWER ")]
    assert line, output
    return json.loads(line[0][7:])


def build_id(path):
    text = subprocess.run(["readelf", "-n", str(path)], capture_output=True, text=True, check=True).stdout
    return re.search(r"Build ID: (\w+)", text).group(1)


def test_target(answer, running, program, options):
    truth = running.truth
    remote = any("target remote" in str(option) for option in options)
    live = remote or "-p" in options
    assert answer["abi"][:2] == [8, "little"] and answer["abi"][3] == answer["auxv"] == 4096
    assert answer["live"] == live and answer["local_pid"] == (running.pid if live and not remote else None)
    assert answer["memory"] == ("CachedMemory" if remote else "ProcessMemory" if live else "ElfCore")
    assert (answer["exe"], answer["pid"]) == (str(program), running.pid)
    assert answer["build_id"] == build_id(program)
    assert [str(program), build_id(program)] in answer["modules"] and len(answer["modules"]) >= 3
    assert answer["letter"] == "x" and answer["problems"] == []

    assert [thread[:2] for thread in answer["threads"]] == [
        list(pair) for pair in enumerate(map(int, truth["tls"]), 1)
    ]
    if live:
        assert [thread[2] for thread in answer["threads"]] == ["bridge", "worker 0", "worker 1", "worker 2"]
    for _, _, _, stack_pointer, tls, registers in answer["threads"]:
        assert stack_pointer and tls and registers > 15

    assert answer["symbols"] == {
        "probe": [[truth["probe"], build_id(program)]],
        "secret": [[truth["secret"], build_id(program)]],
        "per_thread": [], "nosuch": [], "a b": [], "levels": [],
        "main": answer["symbols"]["main"],
    }  # fmt: skip
    assert answer["tls"] == truth["tls"] and answer["no_tls"] == [None, None]
    assert answer["names"] == ["secret+2", None]


def test_structures_from_debug_info(answer, running, program):
    truth = running.truth
    [[found, size, members]] = answer["structs"]
    assert (found, size) == (build_id(program), truth["size"])
    assert {name: members[name][0] for name in members if name in truth} == {
        name: truth[name]
        for name in ("letter", "words", "nested", "nested.values", "as_int", "as_unsigned", "sign")
    }
    assert members["words"][1:] == [8, 8, False] and members["nested.values"][1:] == [4, 3, True]
    assert (
        members["as_int"][3]
        and not members["as_unsigned"][3]
        and members["sign"] == [truth["sign"], 1, None, True]
    )
    assert "flag" not in members and answer["nothing"] == 0


def test_mappings_are_the_kernels(answer, running, options):
    if "core" in str(options[-1]):
        pytest.skip("a core holds fewer")
    with open(f"/proc/{running.pid}/maps") as maps:
        lines = [line.split(None, 5) for line in maps]
    kernel = [
        [*(int(part, 16) for part in f[0].split("-")), f[1][:3], f[5].strip() if len(f) > 5 else ""]
        for f in lines
    ]
    assert answer["regions"] == kernel


# No trace.

STATE = """
import gdb, hashlib, json
def registers():
    return [[t.num] + [str(gdb.execute('info registers', to_string=True))]
            for t in gdb.selected_inferior().threads() if t.switch() is None]
def state():
    frame, thread = gdb.selected_frame(), gdb.selected_thread()
    level = gdb.execute('frame', to_string=True).split()[0]
    found = [gdb.selected_inferior().num, thread.num, level, gdb.execute('show language', to_string=True),
             *(gdb.parameter(name) for name in (
                 'may-call-functions', 'scheduler-locking', 'confirm', 'width', 'pagination'))]
    found += registers()
    thread.switch(); frame.select()
    for line in gdb.execute('info proc mappings', to_string=True).splitlines():
        fields = line.split()
        if len(fields) > 4 and 'rw-' in fields[4] and fields[0].startswith('0x'):
            start, end = int(fields[0], 16), int(fields[1], 16)
            memory = gdb.selected_inferior().read_memory(start, min(end - start, 1 << 20))
            found.append(hashlib.md5(memory).hexdigest())
    return found
import sys
kept = sys.modules.setdefault('kept_state', type(sys)('kept_state'))
if not hasattr(kept, 'state'):
    kept.state = state()
else:
    now = state()
    print('SAME', now == kept.state, len(now), now[:3])
"""

COMMANDS = [
    "probe wander",
    "probe evaluate &probe",
    "probe evaluate touch(1)",
    "probe evaluate called = 1",
    "probe fault",
    "probe interrupted",
    "gx commands",
    *(f"{name} --json={os.devnull}" for name in ALL),
    "blocks at &probe",
    "glibc chunks 0x1234",
    "glibc tcache --thread 99",
]


@pytest.mark.parametrize(
    "selection", [("thread 1", "frame 3"), ("thread 3", "frame 1"), ("thread 1", "frame function main")]
)
def test_nothing_of_the_target_or_the_selection_changes(options, tmp_path, selection):
    state = python(tmp_path / "state.py", STATE)
    checks = [step for command in COMMANDS for step in (f"gx safe {command}", state)]
    output = ask(options, state, *checks, before=selection)
    same = [line for line in output.out.splitlines() if line.startswith("SAME")]
    assert len(same) == len(COMMANDS), output
    assert all(line.startswith("SAME True") for line in same), same
    assert f", {selection[0].split()[1]}, '#" in same[0]


# Sessions.


def targets(output):
    text = re.findall(r"^target +(\d+)|^target: +(\d+)", output.out, re.MULTILINE)
    return [next(filter(None, pair)) for pair in text]


def test_a_target_is_kept_between_commands(options):
    found = targets(
        ask(options, "probe evaluate 1", "thread 2", "probe evaluate 2", "up", "probe evaluate 3")
    )
    assert len(found) == 3 and len(set(found)) == 1


@pytest.mark.parametrize("change", ["next", "set var called = 7", "set var $rbx = 1", "call touch(2)"])
def test_a_change_ends_the_session(program, change):
    keep = "python import sys; from gdbext.bridge.stops import session; sys.kept = session.current().target"
    after = "python print('SAME', sys.kept is session.current().target)"
    output = ask([program], "break ready", "run > /dev/null", keep, after, change, after, "kill")
    assert re.findall(r"SAME (\w+)", output.out) == ["True", "False"], output


def test_another_target_is_another_session(program, core, running):
    tell = "python from gdbext.bridge.stops import session; print('IS', session.current().target.live)"
    output = ask([program], f"core-file {core}", tell, f"attach {running.pid}", tell, "detach",
                 f"core-file {core}", tell, "core-file", "probe evaluate 1")  # fmt: skip
    assert re.findall(r"IS (\w+)", output.out) == ["False", "True", "False"], output
    assert told(output)[-1].startswith("gdbext: probe evaluate: there is no process and no core")


def test_two_inferiors(program, core, running):
    tell = "python from gdbext.bridge.stops import session; print('IS', session.current().target.live)"
    output = ask(
        [program, core], tell, "add-inferior", "inferior 2", f"attach {running.pid}", tell, "inferior 1", tell
    )
    assert re.findall(r"IS (\w+)", output.out) == ["False", "True", "False"], output


HEAPS = """
import sys, types
from dataclasses import dataclass
detect = types.ModuleType('gdbext.heap.detect')
detect.interrupted = True
detect.made = 0
class Heap:
    allocator = family = 'fake'
    detail, problems, complete = object(), (), False
    def __init__(self): self.interrupted = detect.interrupted
def find_heaps(target, progress):
    detect.made += 1
    return [Heap()]
detect.find_heaps = find_heaps
sys.modules['gdbext.heap.detect'] = detect
import gdbext.heap
gdbext.heap.detect = detect
"""


def test_heaps_are_kept_unless_they_were_interrupted(tmp_path, core, program):
    """One that is not complete, since the core lacks memory, would be no other the next time."""
    fake = python(tmp_path / "heaps.py", HEAPS)
    made = "python import sys; print('MADE', sys.modules['gdbext.heap.detect'].made)"
    through = "python sys.modules['gdbext.heap.detect'].interrupted = False"
    output = ask(
        [program, core],
        fake,
        "probe heap fake",
        made,
        through,
        "probe heap fake",
        made,
        "probe heap fake",
        made,
    )
    # Each run asks twice: for one heap, then for all.
    assert re.findall(r"MADE (\d+)", output.out) == ["2", "3", "3"], output


def test_a_heap_that_is_not_there_is_one_line(tmp_path, core, program):
    output = ask([program, core], python(tmp_path / "heaps.py", HEAPS), "probe heap jemalloc")
    assert told(output) == ["gdbext: probe heap: no jemalloc heap in this target; it has: fake"]
    none = python(tmp_path / "none.py", HEAPS + "detect.find_heaps = lambda target, progress: []\n")
    output = ask([program, core], none, "probe heap")
    message = "no glibc heap in this target; no heap of an allocator that gdbext knows was found"
    assert told(output) == [f"gdbext: probe heap: {message}"]


def test_a_running_process_is_one_line(program):
    source = program.parent / "async.gdb"
    source.write_text("set non-stop on\nrun > /dev/null &\nprobe evaluate &probe\nkill\n")
    output = ask([program], f"source {source}")
    assert told(output)[0] == "gdbext: probe evaluate: the process is running; interrupt it first", output


def test_a_core_that_has_gone_is_one_line(program, core, tmp_path):
    copy = tmp_path / "copy"
    shutil.copy(core, copy)
    output = ask([program, copy], f"shell rm {copy}", "probe evaluate 1")
    assert told(output) == [
        "gdbext: probe evaluate: gdb does not name a core file that exists; open it again with core-file CORE"
    ]


@pytest.mark.parametrize("name", ["with space", "it's", "ünï"])
def test_cores_with_odd_names(program, core, tmp_path, name):
    copy = tmp_path / name
    copy.symlink_to(core)
    output = ask([program, f"--core={copy}"], "probe evaluate 1 --json")
    assert told(output) == [] and envelope(output)["target"]["core"] == str(copy), output
