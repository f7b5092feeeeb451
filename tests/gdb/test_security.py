"""What SECURITY.md promises, as far as it can be tested: each time with a gdb that is not guarded as the twin."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gdbext.memory.hostfiles import open_named
from tests.gdb.test_no_harm import compile_c, folder, started
from tests.support import gdbrun
from tests.support.cache import CHECKOUT

assert folder  # a fixture

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void *kept;
void run_by_debugger(void) { FILE *file = fopen("called", "w"); fclose(file); }
int main(void) { kept = malloc(1000); puts("ready"); fflush(stdout); for (;;) pause(); }
"""


def run(line, **more):
    return subprocess.run(line, capture_output=True, text=True, timeout=100, **more)


def gdbext(*words, **more):
    return run([sys.executable, str(CHECKOUT / "bin" / "gdbext"), *map(str, words)], **more)


@pytest.fixture
def place(folder, tmp_path):
    """A program of its own with a core, and scripts that write down that they ran, wherever gdb looks for any."""
    program = tmp_path / "program"
    shutil.copy(compile_c(folder, "program", SOURCE), program)
    with started([str(program)]) as pid:
        gdbrun.run_gdb(["-p", str(pid), "-ex", f"gcore {tmp_path}/core"])
    (tmp_path / ".gdbinit").write_text(f"shell touch {tmp_path}/ran-init\n")
    (tmp_path / "program-gdb.gdb").write_text(f"shell touch {tmp_path}/ran-gdb\n")
    (tmp_path / "program-gdb.py").write_text(f"open('{tmp_path}/ran-py', 'w')\n")
    return tmp_path


def ran(place):
    return sorted(one.name for one in place.glob("ran-*"))


def test_no_script_of_a_target_runs(place):
    home = {**gdbrun.environment(), "HOME": str(place), "XDG_CONFIG_HOME": str(place)}
    core = place / "core"
    for line in (("triage", "--core", core), ("blocks", "at", "kept", "--core", core, "--exe", place / "program")):
        done = gdbext(*line, cwd=place, env=home)
        assert done.returncode == 0, done.stderr
    with started([str(place / "program")], cwd=place) as pid:
        assert gdbext("blocks", "at", "kept", "--pid", pid, cwd=place, env=home).returncode == 0
    library = "import gdbext; gdbext.open_core('core', debugger='gdb').triage()"
    assert not run([sys.executable, "-c", library], cwd=place, env={**home, "PYTHONPATH": str(CHECKOUT)}).returncode
    assert not ran(place)
    twin = [gdbrun.gdb_program(), "-batch", "-iex", "set auto-load safe-path /", str(place / "program"), str(core)]
    run(twin, cwd=place, env=home)
    assert ran(place) == ["ran-gdb", "ran-init", "ran-py"]


def test_no_function_of_a_target_is_called(place):
    (place / "called").unlink(missing_ok=True)
    with started([str(place / "program")], cwd=place) as pid:
        done = gdbext("blocks", "at", "(run_by_debugger(),kept)", "--pid", pid, cwd=place)
        assert done.returncode == 2 and "Cannot call functions in the program" in done.stderr
        assert gdbext("blocks", "at", "kept = 0", "--pid", pid, cwd=place).returncode == 2
        assert not (place / "called").exists()
        run([gdbrun.gdb_program(), "-nx", "-batch", "-p", str(pid), "-ex", "call run_by_debugger()"], cwd=place)
        assert (place / "called").exists()


def test_no_server_is_asked_for_debug_info(place):
    asked = []

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cache = {"DEBUGINFOD_CACHE_PATH": str(place / "cache"), "HOME": str(place), "XDG_CACHE_HOME": str(place)}
    urls = {"DEBUGINFOD_URLS": f"http://127.0.0.1:{server.server_address[1]}"}
    environment = {**gdbrun.environment(), **cache, **urls}
    subprocess.run(["strip", place / "program"], check=True)
    assert gdbext("triage", "--core", place / "core", cwd=place, env=environment).returncode == 0
    assert not asked
    (place / ".gdbinit").unlink()
    line = [gdbrun.gdb_program(), "-nx", "-batch", "-iex", "set debuginfod enabled on", "program", "core"]
    twin = run(line, cwd=place, env=environment)
    server.shutdown()
    server.server_close()
    assert asked or "debuginfod" in twin.stdout + twin.stderr  # a gdb without debuginfod says so


@pytest.mark.skipif(not shutil.which("strace"), reason="no strace on this machine")
def test_no_address_is_connected_to(place):
    line = ["strace", "-f", "-qq", "-e", "trace=socket,connect", "-o", "calls", sys.executable]
    words = ["triage", "--core", "core"]
    done = run([*line, str(CHECKOUT / "bin" / "gdbext"), *words], cwd=place)
    if "ptrace" in done.stderr:
        pytest.skip("this machine does not let strace trace")
    assert done.returncode == 0, done.stderr
    assert "AF_INET" not in (place / "calls").read_text()


SECRETIVE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
char *kept;
int main(void) { kept = fgets(malloc(100), 100, stdin); puts("ready"); fflush(stdout); for (;;) pause(); }
"""


@pytest.mark.skipif(not shutil.which("strace"), reason="no strace on this machine")
def test_no_content_is_in_a_command_line_or_an_environment(folder, tmp_path):
    """Everybody reads them in /proc: what is in a target's heap, stack and environment is in none of our processes'."""
    heap, environment = (f"{what}{os.urandom(8).hex()}" for what in ("inheap", "inenvironment"))
    program = compile_c(folder, "secretive", SECRETIVE)
    (tmp_path / "typed").write_text(heap)
    with open(tmp_path / "typed") as typed, started([str(program)], stdin=typed, env={"HELD": environment}) as pid:
        gdbrun.run_gdb(["-p", str(pid), "-ex", f"gcore {tmp_path}/core"])
        live = sampled(["blocks", "at", "kept", "-p", str(pid)])
    core = (tmp_path / "core").read_bytes()
    assert heap.encode() in core and environment.encode() in core
    with gzip.open(tmp_path / "core.gz", "wb", 1) as packed:
        packed.write(core)
    borrowed = "session = gdbext.open_core('core', debugger='gdb'); print(session.run('blocks at kept').text())"
    gdb = f"{gdbrun.gdb_program()} -nx -batch {program} core"
    seen = executed(
        tmp_path,
        "blocks at kept --core core.gz --json",
        f"{sys.executable} -c \"import gdbext; {borrowed}\"",
        f"{gdb} -ex 'source {gdbrun.LOADER}' -ex 'gx lockwait --dot=waits.svg' -ex 'pipe gx blocks at kept | cat'",
    )
    assert seen.count('"-nx"') >= 3 and '["cat"]' in seen and "gdb\\x00-nx" in live
    assert not any(secret in words for secret in (heap, environment) for words in (seen, live))
    twin = executed(tmp_path, f"{gdb} -ex 'eval \"shell : %s\", kept'")
    assert heap in twin


def executed(folder, *lines):
    """Return all programs that are run for some lines, with their arguments and environments, as strace writes them."""
    program = f"{sys.executable} {CHECKOUT}/bin/gdbext"
    script = " && ".join(line if line.startswith("/") else f"{program} {line}" for line in lines)
    log = folder / "executed"
    strace = ["strace", "-f", "-qq", "-v", "-s", "1000000", "--seccomp-bpf", "-e", "trace=execve", "-o", log]
    done = run([*strace, "sh", "-c", script], cwd=folder, env={**gdbrun.environment(), "PYTHONPATH": str(CHECKOUT)})
    if "ptrace" in done.stderr:
        pytest.skip("this machine does not let strace trace")
    assert done.returncode == 0, done.stderr
    return log.read_text()


def sampled(words):
    """Return the arguments and environments of the program's processes while it runs: strace and a debugger exclude
    each other.
    """
    line = [sys.executable, str(CHECKOUT / "bin" / "gdbext"), *words]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    seen = set()
    while process.poll() is None:
        tree = [process.pid]
        for pid in tree:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                seen |= {Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")}
                tree += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    out, err = process.communicate()
    assert process.returncode == 0 and "in use" in out, err
    return str(seen)


def test_what_is_unpacked_can_be_read_by_nobody_else(place):
    temporary, seen = place / "tmp", place / "seen"
    temporary.mkdir()
    with open(place / "core", "rb") as core, gzip.open(place / "core.gz", "wb", 1) as packed:
        shutil.copyfileobj(core, packed)
    spy = place / "gdb"
    spy.write_text(f'#!/bin/sh\nstat -c "%a %n" {temporary}/* > {seen}\nexec {gdbrun.gdb_program()} "$@"\n')
    spy.chmod(0o755)
    line = ("triage", "--core", place / "core.gz", "--gdb", spy)
    environment = {**gdbrun.environment(), "TMPDIR": str(temporary)}
    done = gdbext(*line, cwd=place, env=environment, preexec_fn=lambda: os.umask(0))
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in seen.read_text().splitlines()] == ["700"]
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("name", ("/proc/self/maps", "/dev/zero", "/sys/kernel/notes", "fifo", "link", "link2", "a\0b"))
def test_what_a_core_names_is_a_regular_file_or_nothing(tmp_path, name):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/proc/kmsg")  # regular to stat(2); to read it takes what the kernel has said
    (tmp_path / "link2").symlink_to(tmp_path / "link")
    assert open_named(os.path.join(tmp_path, name)) is None


def test_a_regular_file_that_a_core_names_is_opened(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    descriptor = open_named(str(tmp_path / "link"))
    assert stat.S_ISREG(os.fstat(descriptor).st_mode)
    os.close(descriptor)
