"""A core of Debian's python3 and nothing else: no symbols, no file of the program, another name than python."""

import resource
import shutil
import subprocess
from pathlib import Path

import pytest

import gdbext
from tests.support.pythonframes import FRAMES, check_frames

SCRIPT = """
import os
class Session:
    def __init__(self, n): self.n = n
sessions = [Session(n) for n in range(60_000)]
os.abort()
"""


def core_of(folder, *arguments):
    """Return the core of a python3.11 of another name, whose file is gone."""
    program, pattern = Path("/usr/bin/python3.11"), Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if not program.exists() or pattern.startswith("|") or "/" in pattern:
        pytest.skip("no python3.11 of the system here, or the kernel puts cores elsewhere")
    shutil.copy(program, folder / "service")

    def allow_core():
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))

    subprocess.run([folder / "service", *arguments], cwd=folder, preexec_fn=allow_core, check=False)
    (folder / "service").unlink()
    cores = list(folder.glob("core*"))
    if not cores:
        pytest.skip("the kernel wrote no core here")
    return cores[0]


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    return core_of(tmp_path_factory.mktemp("alone"), "-SEc", SCRIPT)


def test_its_class_is_the_first_type_and_all_of_it_is_counted(core):
    with gdbext.open_core(core) as session:
        rows = session.run("blocks types").data.types
        assert (rows[0].name, rows[0].blocks, rows[0].confidence) == ("__main__.Session", 60_000, "high")
        (own,) = [row for row in session.run("gx python types").data.types if row.name == "__main__.Session"]
        assert own.objects == 60_000 and own.owned_bytes >= 60_000 * 16


def test_its_memory_has_owners(core):
    with gdbext.open_core(core) as session:
        account = session.run("rss").data
        assert account.residual == 0
        costs = {entry.owner: entry.in_core for entry in account.entries}
        assert costs.get("anonymous rest", 0) < 0.05 * sum(costs.values())
        assert list(session.triage().findings) == []


def test_locals_of_frames_are_named_in_it(tmp_path):
    (tmp_path / "script.py").write_text(FRAMES)
    core = core_of(tmp_path, "-SE", str(tmp_path / "script.py"), str(tmp_path / "truth"), "abort")
    with gdbext.open_core(core) as session:
        check_frames(session, tmp_path)
