"""The library: the figures of gdb without gdb, sessions that leave nothing behind, and the examples of its page."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

import gdbext
from gdbext.errors import BadCoreError, NoTargetError, StoppedError, UsageError
from gdbext.progress import own_checks, threads
from gdbext.session.answers import Answer
from gdbext.session.stopping import Stops
from tests.gdb.answers import ask
from tests.support.boards import Board
from tests.support.cache import CHECKOUT
from tests.support.glibcs import MATRIX, Unavailable

IN_UTF8 = {**os.environ, "LC_ALL": "C.UTF-8"}

LOADED = f"gdb.execute('source {CHECKOUT / 'gdbext' / 'load.py'}')"
SYSTEM = Board("core", "debug", "system")
# What says by which name something was found, and is another without one.
NAMES = ("evidence", "missing", "type", "types", "by_type", "contents", "roots", "died", "death", "ledger", "lock_name")
SAME = ("rss", "glibc arenas", "glibc check", "blocks summary", "blocks leaks --list --possible")


@pytest.fixture
def staged(stages):
    def on(program, *arguments, glibc="system"):
        try:
            return stages.get(Board("core", "debug", glibc), program, arguments)
        except Unavailable as reason:
            pytest.skip(str(reason))

    return on


def without_names(value):
    """A document without what only a debugger knows."""
    if isinstance(value, dict):
        return {key: without_names(item) for key, item in value.items() if key not in NAMES}
    return [without_names(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("program", ("leaks", "arena_proliferation"))
@pytest.mark.parametrize("glibc", MATRIX)
def test_figures_are_those_of_gdb(staged, glibc, program):
    here = staged(program, glibc=glibc)
    answers = ask(here, *SAME, "triage")
    with gdbext.open_core(str(here.core)) as session:
        for line, theirs in zip(SAME, answers):
            assert without_names(session.run(line).to_dict()["data"]) == without_names(theirs["data"]), line
        page = session.triage()
    assert page.to_dict()["data"]["heaps"] == answers[-1]["data"]["heaps"]
    ours = [(one.kind, one.bytes) for one in page.findings]
    assert ours == [(one["kind"], one["bytes"]) for one in answers[-1]["data"]["findings"]]
    assert not page.complete and "tables and types by name (no debugger)" in str(page).splitlines()[1]


def test_in_gdb_it_has_what_gdb_knows(staged, tmp_path):
    here = staged("hash_tables", "--entries", "1500", "--bins", "64")
    answer = tmp_path / "answer.json"
    said = f"pathlib.Path({str(answer)!r}).write_text(session.triage().to_json())"
    first = "next(iter(session.blocks(where='state == in-use'))).address"
    shown = f"print(session.run('blocks at ' + hex({first})))"
    output = here.text(f"python import gdbext, pathlib; session = gdbext.current(); {said}; {shown}", "set gx safe on")
    (theirs,) = ask(here, "triage")
    ours = json.loads(answer.read_text())
    assert ours["data"] == theirs["data"] and ours["status"] == theirs["status"] == 1
    assert "words are shown; --words 0 shows all" in output.out and "Traceback" not in output.err


def test_in_gdb_a_session_ends_with_its_stop_and_is_of_one_inferior(staged):
    first, second = staged("leaks"), staged("arena_proliferation")
    asked = """
import gdb, gdbext
from gdbext.errors import GdbextError
def ask(session):
    try:
        print('SAID', session.triage().target.identity.exe.rpartition('/')[2])
    except GdbextError as error:
        print('SAID', error.message)
one = gdbext.current(); ask(one)
gdb.execute('add-inferior -no-connection'); gdb.execute('inferior 2')
gdb.execute('file SECOND.EXE'); gdb.execute('core-file SECOND.CORE')
ask(one); ask(gdbext.current())
gdb.execute('inferior 1'); now = gdbext.current(); ask(now)
now.close(); ask(now); ask(gdbext.current())
print('SAID', 'glibc arenas' if 'arenas' in gdb.execute('glibc arenas', to_string=True) else 'nothing')
"""
    asked = asked.replace("SECOND.EXE", str(second.executable)).replace("SECOND.CORE", str(second.core))
    said = [line[5:] for line in first.python("import sys\n" + LOADED + asked).splitlines() if line.startswith("SAID ")]
    ended = "the session has ended with its stop"
    assert said[0] == "leaks" and said[1] in (ended, "inferior 1 is not selected")
    assert said[2:] == ["arena_proliferation", "leaks", ended, "leaks", "glibc arenas"]


def test_a_plain_python_prints_the_page(staged):
    code = f"import gdbext; print(gdbext.open_core({str(staged('leaks').core)!r}).triage())"
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, cwd=CHECKOUT, env=IN_UTF8, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("leaks · pid ") and "glibc in use" in ran.stdout and ran.stderr == ""
    lazy = "import sys, gdbext; assert not {'numpy', 'gdb', 'gdbext.session'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", lazy], cwd=CHECKOUT, check=True)


def test_many_sessions_leave_nothing_behind(staged):
    core = str(staged("leaks").core)

    def once():
        with gdbext.open_core(core) as session:
            assert session.leaks().data.totals.leaked_blocks and session.triage().data.heaps

    once()
    gc.collect()
    before = held()
    for _ in range(100):
        once()
    gc.collect()
    assert held() == before


def held():
    """Files, mappings of files, and threads of this process."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return len(os.listdir("/proc/self/fd")), sum(" /" in line for line in maps), threading.active_count()


AT_HAND = ("triage", "rss", "glibc arenas", "glibc chunks", "blocks summary", "blocks list", "blocks types", "lockwait")


def test_an_answer_keeps_what_it_has_and_not_the_core(staged):
    core = str(staged("leaks").core)
    before = held()
    with gdbext.open_core(core) as session:
        answers = [session.run(line) for line in AT_HAND]
        documents = [answer.to_json() for answer in answers]
        answers += [session.run(line) for line in AT_HAND]
        late = session.leaks()
    gc.collect()
    with pytest.raises(NoTargetError, match="the session is closed"):
        late.to_json()
    del session, late
    gc.collect()
    assert core not in Path("/proc/self/maps").read_text() and held()[0] == before[0]
    assert [answer.to_json() for answer in answers] == documents * 2


def test_two_sessions_in_two_threads(staged):
    cores = [str(staged(name).core) for name in ("leaks", "arena_proliferation")]
    alone = [totals(core) for core in cores]
    found = [[], []]

    def work(at):
        for _ in range(5):
            found[at].append(totals(cores[at]))

    workers = [threading.Thread(target=work, args=(at,)) for at in (0, 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == [[alone[0]] * 5, [alone[1]] * 5]


def totals(core):
    with gdbext.open_core(core) as session:
        return session.leaks().data.totals


def test_stop_ends_what_runs_in_another_thread_and_nothing_else(staged):
    core = str(staged("million_chunks").core)
    with gdbext.open_core(core) as session, gdbext.open_core(core) as other:
        ended = []
        worker = threading.Thread(target=lambda: ended.append(outcome(session)))
        worker.start()
        while worker.is_alive():  # between two of its questions there is nothing to stop
            session.stop()
            worker.join(0.1)
        assert ended == ["stopped"]
        assert other.run("blocks summary").complete and session.run("blocks summary").complete


@pytest.fixture
def often():
    """Threads take turns so often that a stop comes anywhere."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual)


def test_a_stop_hits_nothing_but_the_work(often):
    """Stopped at any moment, also at its end: what follows is not interrupted, and the next work runs."""
    stops, ended = Stops(), 0
    for moment in range(300):
        stopper = threading.Timer(moment / 50_000, stops.stop)
        stopper.start()
        with suppress(StoppedError):
            ended += stops.run(lambda: work(stops))
        for _ in range(100):
            pass
        stopper.join()
    assert 0 < ended < 300
    assert stops.run(lambda: work(stops)) == 1 and own_checks() == []


def test_what_goes_on_after_a_stop_has_a_grace():
    """Work that takes the stop as a reason to say what it has, and never comes to an end with that."""
    stops, begun = Stops(), threading.Event()

    def stubborn():
        begun.set()
        for _ in range(3):
            with suppress(KeyboardInterrupt):
                while True:
                    pass
        return "said"

    def brief():
        begun.set()
        try:
            while True:
                pass
        except KeyboardInterrupt:
            return "said"

    def endless():
        brief()
        while True:
            pass

    answers = []
    for one in (stubborn, brief, endless):
        begun.clear()
        stopper = threading.Thread(target=lambda: begun.wait() and stops.stop())
        stopper.start()
        try:
            answers.append(stops.run(one))
        except StoppedError:
            answers.append("stopped")
        stopper.join()
    assert answers == ["said", "said", "stopped"]


def test_the_number_of_native_threads_is_the_sessions(staged):
    core, answers = str(staged("leaks").core), []
    for wanted in (1, 2, 5, 0):
        with gdbext.open_core(core, settings={"threads": wanted}) as session:
            answers.append(session.run("blocks leaks --list --possible").to_json())
            assert threads() == wanted
    assert answers == answers[:1] * 4


def work(stops):
    for _ in range(10_000):
        stops.at("", 0, None)
    return 1


def outcome(session):
    """What becomes of so much work that it is stopped in the midst of it."""
    for _ in range(1000):
        try:
            if not session.run("blocks types").complete:
                return "stopped"
        except StoppedError:
            return "stopped"
        session._reach.clear()
    return "ended"


def test_what_is_wrong_is_an_error_with_a_hint(staged, tmp_path):
    with pytest.raises(BadCoreError):
        gdbext.open_core(str(tmp_path / "nothing"))
    core = str(staged("leaks").core)
    with pytest.raises(UsageError, match="no setting 'most'"):
        gdbext.open_core(core, settings={"most": 1})
    for value in ("7", None, -1, 1 << 70):
        with pytest.raises(UsageError, match="not a number of 0 or more"):
            gdbext.open_core(core, settings={"leak-search-blocks": value})
    session = gdbext.open_core(core, settings={"leak-search-blocks": 1})
    page = session.triage()
    assert isinstance(page, Answer)
    assert any("set gx leak-search-blocks is 1" in one.message for one in page.evidence)
    wrong = (
        ("xyzzy", "no command"),
        ("", "no command"),
        ("breakpoints list", "gdb alone"),
        ("walklist 0x10 --next 0 --where 1", "gdb alone"),
        ("blocks list --lmit", "--lmit"),
        ("blocks list --limit 3", "for the command line"),
        ("blocks at", "an address is missing"),
    )
    for line, message in wrong:
        with pytest.raises(UsageError, match=message):
            session.run(line)
    with pytest.raises(UsageError, match="without a debugger; give an address"):
        session.run("blocks at main_arena")
    for line in ("  gx  blocks   summary --exact ", "blocks summary --exact\n"):
        assert session.run(line).to_json() == session.run("blocks summary --exact").to_json()
    assert "types by name were not examined" in session.run("blocks types").problems[-1].message
    session.close()
    with pytest.raises(NoTargetError, match="closed"):
        session.triage()


def test_blocks_are_a_table(staged):
    here = staged("leaks")
    named = {one["name"]: int(one["address"], 16) for one in here.truth.details["blocks"]}
    with gdbext.open_core(str(here.core)) as session:
        table = session.blocks(where="reach == leaked", columns="address,size")
        rows = list(table)
        assert table.complete and len(table) == len(rows) and named["plain large"] in {row.address for row in rows}
        (batch,) = table.batches()
        assert list(batch["size"].cells()) == [row.size for row in rows]
        typed = session.blocks(where="type ~ 'no such'", columns="address")
        assert list(typed) == [] and not typed.complete
        listed = session.run("blocks list --where \"type == 'no such'\"")
        assert "types by name were not examined" in listed.problems[-1].message and listed.status == 3


# ---- the page's examples ----


def examples():
    page = (CHECKOUT / "docs" / "library.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def require(*modules):
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


def run_example(number, here, folder):
    (folder / "core").symlink_to(here.core)
    environment = {**IN_UTF8, "PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-c", examples()[number]]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def test_the_first_example(staged, tmp_path):
    assert run_example(0, staged("leaks"), tmp_path).startswith("leaks · pid ")


def test_what_leaked_as_a_dataframe(staged, tmp_path):
    require("pyarrow", "pandas")
    here = staged("leaks")
    leaked = [one for one in here.truth.details["blocks"] if one["state"] == "leaked"]
    said = run_example(1, here, tmp_path)
    assert f"{len(leaked)} blocks, {sum(one['usable'] for one in leaked)} bytes" in said


def test_bins_as_a_plot(staged, tmp_path, monkeypatch):
    require("matplotlib")
    here = staged("hash_tables", "--entries", "1500", "--bins", "64")
    script = tmp_path / "bins.py"
    places = [path for path in sys.path if path.endswith("site-packages")]
    example = examples()[2].replace("bins.png", str(tmp_path / "bins.png"))
    script.write_text(f"import sys; sys.path += {places!r}\n{example}")
    output = here.text(f"source {script}")
    assert (tmp_path / "bins.png").exists(), output
    assert (tmp_path / "bins.png").read_bytes().startswith(b"\x89PNG")


def test_a_finding_of_ones_own(staged, tmp_path):
    said = run_example(3, staged("arena_proliferation"), tmp_path)
    assert re.search(r"^\d+ blocks of \d+ bytes, each with one owner, are \d+% of what is held so$", said, re.MULTILINE)
