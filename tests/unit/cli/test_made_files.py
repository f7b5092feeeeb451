"""Files that we make: which, and where; that nobody else may read ours, and that the user's are whole or as before."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile

import pytest

from gdbext.cli.workfolder import work_folder
from gdbext.files import Addition, PrivateFile, replacing
from gdbext.grammar.exchange import Question, Trailer, open_answer, write_question, write_trailer

from .test_program import FAKE, ROOT, program

assert program  # a fixture

OURS = "of our own, below a folder of mode 0700"
USERS = "the user's, by the umask; whole or as before"
MAKERS = {
    "gdbext/analysis/growth/census.py": {"open": OURS + ": blocks of a sample, until it is compared"},
    "gdbext/bridge/commands/command.py": {"replacing": USERS + ": --json=FILE in gdb"},
    "gdbext/bridge/ports/memory.py": {"TemporaryFile": "of our own, without a name: a file of a remote machine"},
    "gdbext/bridge/stops/progress.py": {"open": "none is made: a terminal that is open already"},
    "gdbext/borrowing/borrowed.py": {"TemporaryFile": "of our own, without a name: what the borrowed gdb says"},
    "gdbext/cli/copying.py": {
        "memfd_create": "of our own, without a name, in memory: a copied process",
        "open": OURS + ": what a copier says",
    },
    "gdbext/cli/gdbrun.py": {"open": OURS + ": what gdb says"},
    "gdbext/cli/output.py": {"Replacement": USERS + ": --json=FILE", "Addition": USERS + ": that of a core more"},
    "gdbext/cli/run.py": dict.fromkeys(("mkdir", "mkdtemp"), OURS + ": samples, questions"),
    "gdbext/cli/sampler.py": {"open": "none is made: of the kernel, /proc/self/oom_score_adj"},
    "gdbext/cli/unpack.py": {"open": OURS + ": a core, unpacked"},
    "gdbext/cli/streams.py": {"open": "none is made: standard streams that are open already"},
    "gdbext/files.py": {
        "open": USERS + "; in place where it cannot be replaced",
        "Replacement": "that",
        "private": "the user's, mode 0600, whole or as before: snapshot -o",
    },
    "gdbext/filecache/store.py": {
        "makedirs": "the user's cache, of mode 0700",
        "open": "of mode 0600, in that folder: entries, each whole or not there",
    },
    "gdbext/filecache/debuginfod.py": {
        "makedirs": "folders of the user's cache, of mode 0700",
        **dict.fromkeys(("open", "private", "O_CREAT"), "of mode 0600, in them: what a server gave, or failed in"),
    },
    "gdbext/fleet/command.py": {"replacing": USERS + ": --json=FILE of fleet"},
    "gdbext/fleet/layout.py": {
        "mkdir": OURS + ": rows for an object store, until they are in a part",
        "makedirs": "folders of the user's dataset, by the umask",
        "O_CREAT": "the user's, by the umask: the lock of a dataset",
    },
    "gdbext/fleet/stores/fetching.py": {"open": OURS + ": a core of an object store"},
    "gdbext/fleet/stores/objects.py": {"makedirs": OURS + ": a copy of a dataset in an object store"},
    "gdbext/fleet/stores/places.py": {
        "makedirs": "folders of the user's dataset, by the umask",
        "replacing": USERS + ": files of a dataset",
    },
    "gdbext/fleet/run.py": {"replacing": USERS + ": rows of one core, until they are in a part"},
    "gdbext/grammar/exchange.py": {"open": OURS + ": question, answer, trailer"},
    "gdbext/recording/journal.py": {
        "mkdir": "the folder that the user names, of mode 0700",
        "O_CREAT": "of mode 0600, in that folder: the samples, which are only added to",
    },
    "gdbext/starting/downloads.py": {"mkdtemp": OURS + ": a folder of links"},
    "gdbext/starting/indexcache.py": {
        "mkdir": OURS + ": for indexes of gdb",
        "open": "of mode 0600, in the user's cache: the same, each whole or not there",
    },
    "gdbext/starting/lockedfolder.py": {"mkdtemp": "the folder of mode 0700", "private": OURS + ": its lock"},
    "gdbext/starting/specialfiles.py": dict.fromkeys(("mkdir", "makedirs"), OURS + ": folders of links"),
    "commands/compare.py": {"open": OURS + ": a sample, until it is compared"},
    "commands/drawing.py": {"replacing": USERS + ": --dot, --flame, --svg, --output"},
    "gdbext/memory/live/copying.py": {"memfd_create": "of our own, without a name, in memory: a copied process"},
    "commands/shapes.py": {"open": "the user's, by the umask, never over another: gx shapes save"},
}
NAMED = (
    "mkdtemp mkstemp TemporaryDirectory NamedTemporaryFile TemporaryFile mkdir makedirs mkfifo memfd_create write_text "
    "write_bytes replacing Replacement Addition"
)
MAKING = re.compile(
    rf"\b({'|'.join(NAMED.split())})\b|\b(private)\(.*O_CREAT|\b(open)\(.*\"(?:[rbt]*[wxa+][wxab+t]*)\"|(O_CREAT)"
)


def made_by(path):
    """Return the names of the functions by which a file makes files."""
    lines = path.read_text(encoding="utf-8").splitlines()
    code = [line.split("#")[0] for line in lines if not line.startswith(("from ", "import ", "class ", "def "))]
    return {next(filter(None, one.groups())) for line in code for one in MAKING.finditer(line)}


def test_every_place_where_a_file_is_made_is_known():
    folders = [ROOT / folder for folder in ("gdbext", "commands", "printers")]
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    found = {str(path.relative_to(ROOT)): names for path in paths if (names := made_by(path))}
    assert found == {path: set(names) for path, names in MAKERS.items()}


def test_no_library_function_takes_a_signal():
    """Those belong to whoever uses it; the program and the gdb and Python that it starts have theirs."""
    callers = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "gdbext").rglob("*.py")
        if "signal.signal(" in path.read_text(encoding="utf-8")
    }
    gdb, program = ("commands/shell", "stops/attaching"), ("__main__", "alone", "ending", "interactive")
    known = [*(f"bridge/{name}" for name in gdb), *(f"cli/{name}" for name in program)]
    assert callers == {f"gdbext/{path}.py" for path in known}


@pytest.fixture
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.parametrize("umask", [0, 0o027, 0o777], indirect=True)
def test_what_is_ours_nobody_else_may_read(umask, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with work_folder() as folder:
        write_question(folder, Question("triage"))
        with open_answer(folder, Question("triage")):
            pass
        write_trailer(folder, Trailer(0, True, False, 0))
        assert mode_of(folder) == 0o700
        assert {name: mode_of(os.path.join(folder, name)) for name in os.listdir(folder)} == dict.fromkeys(
            ("lock", "question.json", "answer", "trailer.json"), 0o600
        )


def test_an_unpacked_core_and_what_gdb_says_too(program):
    spy = program.folder / "spy"
    spy.write_text(f"#!/bin/sh\nstat -c '%a %n' $TMPDIR/*/* > {program.folder}/modes\nexec '{program.gdb}' \"$@\"\n")
    spy.chmod(0o755)
    packed = program.folder / "core.gz"
    packed.write_bytes(gzip.compress(program.core.read_bytes()))
    assert program.run("triage", "--core", packed, "--gdb", spy, gdb=False)[0] == 0
    modes = dict(reversed(line.split()) for line in (program.folder / "modes").read_text().splitlines())
    assert set(modes.values()) == {"600"}
    assert {os.path.basename(path) for path in modes} == {"core", "lock", "question.json", "stderr", "stdout"}


@pytest.mark.parametrize("umask", [0o002, 0o077], indirect=True)
def test_the_users_file_is_as_the_user_has_it(umask, tmp_path):
    new, old, link = tmp_path / "new", tmp_path / "old", tmp_path / "link"
    old.write_text("before")
    old.chmod(0o604)
    link.symlink_to(old)
    for path in (new, old):
        with replacing(str(path)) as stream:
            stream.write(b"now")
    assert (mode_of(new), mode_of(old)) == (0o666 & ~umask, 0o604)
    with replacing(str(link)) as stream:
        stream.write(b"by its link")
    assert link.is_symlink() and (new.read_text(), old.read_text()) == ("now", "by its link")


def test_a_users_file_that_cannot_be_written_is_as_it_was(tmp_path):
    old = tmp_path / "old"
    old.write_text("before")
    for path in (tmp_path / "new", old):
        with pytest.raises(OSError, match="No space"), replacing(str(path)) as stream:
            stream.write(b"half")
            raise OSError(28, "No space left on device")
    more = Addition(str(old))
    more.stream.write(b"half")
    more.stream.flush()
    more.discard()
    assert [one.name for one in tmp_path.iterdir()] == ["old"] and old.read_text() == "before"


def test_what_cannot_be_replaced_is_written_in_place(tmp_path):
    with replacing("/dev/null") as stream:
        stream.write(b"x")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    (tmp_path / "one").write_text("before")
    os.link(tmp_path / "one", tmp_path / "two")
    with replacing(str(tmp_path / "one")) as stream:
        stream.write(b"both")
    assert (tmp_path / "two").read_text() == "both"


@pytest.fixture
def guarded(tmp_path):
    """A user's file that not everybody may read."""
    path = tmp_path / "guarded"
    path.write_text("before")
    path.chmod(0o640)
    return path


def write_in_place(path):
    before = os.stat(path)
    with replacing(str(path)) as stream:
        assert [one.name for one in path.parent.iterdir()] == [path.name]
        stream.write(b"now")
    after = os.stat(path)
    assert path.read_text() == "now" and [one.name for one in path.parent.iterdir()] == [path.name]
    for name in ("st_ino", "st_mode", "st_uid", "st_gid"):
        assert getattr(after, name) == getattr(before, name)


def test_a_file_of_another_group_keeps_it(guarded):
    others = {65534, *os.getgroups()} if os.geteuid() == 0 else set(os.getgroups())
    others.discard(guarded.stat().st_gid)
    if not others:
        pytest.skip("we are in one group only")
    os.chown(guarded, -1, min(others))
    write_in_place(guarded)
    assert guarded.stat().st_gid == min(others)


def test_an_access_list_stays(guarded):
    entries = [(1, 6, -1), (2, 4, 65534), (4, 4, -1), (16, 4, -1), (32, 0, -1)]  # acl(5): 65534 may read it
    access = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(guarded, "system.posix_acl_access", access)
    except OSError:
        pytest.skip("no access lists in the file system here")
    write_in_place(guarded)
    assert os.getxattr(guarded, "system.posix_acl_access") == access


def test_a_mode_that_the_file_system_refuses_leaves_nothing_behind(guarded, monkeypatch):
    def refuse(descriptor, mode):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refuse)
    write_in_place(guarded)


@pytest.mark.parametrize("umask", [0], indirect=True)
def test_what_replaces_a_file_is_never_open_to_more_than_it(umask, guarded, monkeypatch):
    modes = []
    real = os.fchmod

    def note(descriptor, mode):
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        real(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", note)
    before = guarded.stat().st_ino
    with replacing(str(guarded)) as stream:
        stream.write(b"now")
    assert modes == [0o640] and guarded.stat().st_ino != before and guarded.read_text() == "now"


def on_full_disk(program, size, filled, *words, **environment):
    """Run the program where ``full`` is a small file system of its own, and list what is there afterwards."""
    full = program.folder / "full"
    full.mkdir(exist_ok=True)
    (program.folder / "plan.json").write_text(json.dumps({
        "answers": {"json": "x" * 100_000, "text": "x" * 100_000},
        "trailer": {"status": 0, "complete": True, "findings": False, "error": None},
    }))  # fmt: skip
    script = (
        f"mount -t tmpfs -o size={size}k x {full} && head -c {filled}k /dev/zero > {full}/there || exit 99\n"
        f'"$@"; status=$?; ls -A {full} >&2; exit $status'
    )
    line = [sys.executable, "-m", "gdbext.cli", *map(str, words), f"--gdb={program.gdb}"]
    own = {"PYTHONPATH": str(ROOT), "FAKE_GDB": str(program.folder / "plan.json"), "TMPDIR": str(program.temporary)}
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", *line],
        capture_output=True, text=True, cwd=program.folder, env={**os.environ, **own, **environment},
    )  # fmt: skip
    if done.returncode in (1, 99):
        pytest.skip("no file system of our own can be mounted here")
    *said, left = done.stderr.splitlines()
    assert left == "there" and "Traceback" not in done.stderr
    return done.returncode, [line for line in said if "--exe" not in line]


@pytest.mark.skipif(not shutil.which("unshare"), reason="no program unshare")
def test_full_disks(program):
    assert FAKE.exists()
    full = program.folder / "full"
    packed = program.folder / "core.gz"
    packed.write_bytes(gzip.compress(program.core.read_bytes() + os.urandom(1 << 18)))
    status, said = on_full_disk(program, 200, 4, "triage", packed, TMPDIR=str(full))
    (line,) = said
    hint = "--max-unpacked SIZE allows more, TMPDIR names another place"
    assert status == 2 and line.startswith(f"gdbext: triage: {packed} unpacks to more than the 1")
    assert line.endswith(f" KiB that are nine tenths of what is free in {full}; {hint}")
    words = ("triage", packed, "--max-unpacked", "1G")
    status, said = on_full_disk(program, 200, 4, *words, TMPDIR=str(full))
    hint = "TMPDIR=FOLDER names a folder with room for the unpacked core"
    assert status == 2
    assert said == [f"gdbext: triage: cannot unpack {packed} in {full}: No space left on device; {hint}"]
    status, said = on_full_disk(program, 40, 28, "triage", program.core, TMPDIR=str(full))
    assert (status, said) == (2, [f"gdbext: triage: no room to work in: {full} is full; TMPDIR names the place for it"])
    status, said = on_full_disk(program, 40, 4, "triage", program.core, f"--json={full}/there")
    assert (status, said) == (2, [f"gdbext: triage: cannot write {full}/there: No space left on device"])


@pytest.mark.parametrize("before", (None, b"older"))
def test_a_private_file_takes_its_place_whole_or_not_at_all(tmp_path, before):
    path = tmp_path / "core"
    if before is not None:
        path.write_bytes(before)
    mask = os.umask(0)
    try:
        file = PrivateFile(str(path))
    finally:
        os.umask(mask)
    os.write(file.descriptor, b"new")
    assert (path.read_bytes() if path.exists() else None) == before and len(os.listdir(tmp_path)) == 1 + (
        before is not None
    )
    file.discard()
    assert (path.read_bytes() if path.exists() else None) == before and len(os.listdir(tmp_path)) == (
        before is not None
    )
    file = PrivateFile(str(path))
    os.write(file.descriptor, b"new")
    file.commit()
    file.discard()
    assert (
        path.read_bytes() == b"new" and stat.S_IMODE(path.stat().st_mode) == 0o600 and os.listdir(tmp_path) == ["core"]
    )


def test_a_private_file_replaces_nothing_but_files(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo", "", "none/file"):
        with pytest.raises(OSError):
            PrivateFile(f"{tmp_path}/{name}")
    assert sorted(os.listdir(tmp_path)) == ["fifo", "file", "link"]
