"""Debian's own servers and Python under a small load: what gdbext says reconciles, and nothing is found.

Nobody wrote these programs for us, so the oracles are the kernel's RSS, ``mp_``, and ``malloc_stats(3)``, which
gdb calls in the process after everything else is done. Those on jemalloc are in ``test_real_jemalloc.py``.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import pytest

from tests.support import gdbrun, preloaded
from tests.support.ports import free_port
from tests.support.rest import wait_for_rest

pytestmark = pytest.mark.slow

COMMANDS = (
    "triage",
    "rss",
    "glibc arenas",
    "glibc heaps",
    "glibc chunks",
    "glibc bins",
    "glibc tcache",
    "glibc mmapped",
    "glibc check",
    "glibc trim",
    "blocks summary",
)
NO_DEBUG_INFO = ("-iex", "set debug-file-directory /nonexistent")
WIDTH = 100  # characters of a line of text output
READY = 20.0  # seconds that a program has to answer


@dataclass(frozen=True)
class Daemon:
    """A program at work.

    :param pid: of the process that serves, which may be a child of the one started.
    :param output: its standard error and the like, where ``malloc_stats`` may write.
    """

    pid: int
    exe: str
    output: tuple[Path, ...]


@dataclass(frozen=True)
class Answers:
    """What a run of gdb said: the envelopes by command, and all the text."""

    envelopes: dict[str, Any]
    text: str

    def data(self, command: str) -> Any:
        envelope = self.envelopes[command]
        assert envelope["data"] is not None, envelope["error"]
        return envelope["data"]


# ---- starting programs, and giving them something to do ----


@pytest.fixture(autouse=True)
def _may_attach() -> None:
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if scope.exists() and int(scope.read_text()) > (2 if os.geteuid() == 0 else 0):
        pytest.skip("this machine forbids gdb to attach to what it did not start")


def require(program: str, package: str) -> str:
    found = shutil.which(program, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    if not found:
        pytest.skip(f"no {program} on this machine (Debian's package {package})")
    return found


@contextlib.contextmanager
def running(
    command: list[str], folder: Path, environment: Optional[dict[str, str]] = None
) -> Iterator[subprocess.Popen[bytes]]:
    with open(folder / "output", "wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", **(environment or {})},
            start_new_session=True,
            preexec_fn=gdbrun.die_with_parent,
        )
    try:
        yield process
    finally:
        gdbrun.kill_group(process)


def wait_for(ready: Callable[[], Any], process: subprocess.Popen[bytes], folder: Path) -> None:
    end = time.monotonic() + READY
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if ready():
                return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise AssertionError(f"it does not answer\n{(folder / 'output').read_text(errors='replace')[-2000:]}")


def accepts(port: int) -> bool:
    socket.create_connection(("127.0.0.1", port), 1).close()
    return True


@contextlib.contextmanager
def memcached(folder: Path) -> Iterator[Daemon]:
    exe, port = require("memcached", "memcached"), free_port()
    options = ["-l", "127.0.0.1", "-p", str(port), "-U", "0", "-t", "4", "-m", "64", "-u", "root"]
    with running([exe, *options], folder) as process:
        wait_for(lambda: accepts(port), process, folder)
        clients = [threading.Thread(target=fill, args=(port, seed)) for seed in range(4)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        yield Daemon(process.pid, exe, (folder / "output",))


def fill(port: int, seed: int) -> None:
    chosen = random.Random(seed)
    with socket.create_connection(("127.0.0.1", port), READY) as connection, connection.makefile("rwb") as stream:
        for _ in range(1000):
            key, size = chosen.randrange(800), chosen.randrange(1, 4000)
            stream.write(b"set k%d 0 0 %d\r\n%s\r\nget k%d\r\n" % (key, size, b"x" * size, key))
            stream.flush()
            while not stream.readline().startswith(b"END"):
                pass


NGINX = """
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/errors; {user}
events {{ worker_connections 64; }}
http {{
  access_log off; gzip on; gzip_min_length 100; keepalive_requests 10000; root {folder}/root;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  server {{ listen 127.0.0.1:{port}; location / {{ autoindex on; }} }}
}}
"""


@contextlib.contextmanager
def nginx(folder: Path) -> Iterator[Daemon]:
    exe, port = require("nginx", "nginx-light"), free_port()
    (folder / "root").mkdir()
    for number in range(10):
        (folder / "root" / str(number)).write_bytes(b"<p>hello</p>\n" * (number * 80 + 1))
    configuration = folder / "nginx.conf"
    configuration.write_text(NGINX.format(folder=folder, port=port, user="user root;"))
    with running([exe, "-p", str(folder), "-c", str(configuration)], folder) as process:
        wait_for(lambda: accepts(port), process, folder)
        connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=READY) for _ in range(8)]
        for number in range(2000):
            connection = connections[number % 8]
            connection.request("GET", f"/{number % 12}", headers={"Accept-Encoding": "gzip"} if number % 2 else {})
            connection.getresponse().read()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        yield Daemon(int(children[0]), exe, (folder / "output", folder / "errors"))
        for connection in connections:
            connection.close()


UNBOUND = """
server:
  username: ""
  chroot: ""
  directory: "{folder}"
  pidfile: "{folder}/pid"
  do-daemonize: no
  use-syslog: no
  num-threads: 2
  interface: 127.0.0.1
  port: {port}
  do-ip6: no
  module-config: "iterator"
  local-zone: "test." static
{data}
remote-control:
  control-enable: no
"""


@contextlib.contextmanager
def unbound(folder: Path) -> Iterator[Daemon]:
    exe, port = require("unbound", "unbound"), free_port()
    data = "\n".join(f'  local-data: "h{n}.test. A 10.0.{n // 250}.{n % 250}"' for n in range(1000))
    (folder / "unbound.conf").write_text(UNBOUND.format(folder=folder, port=port, data=data))
    with running([exe, "-d", "-c", str(folder / "unbound.conf")], folder) as process:
        wait_for(lambda: resolve(port, 1), process, folder)
        assert resolve(port, 3000) == 3000
        yield Daemon(process.pid, exe, (folder / "output",))


def resolve(port: int, count: int) -> int:
    """Ask for names, some of which there are not; return how many answers came."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(2)
        client.connect(("127.0.0.1", port))
        for number in range(count):
            label = b"h%d" % (number % 1100)
            name = bytes([len(label)]) + label + b"\4test\0"
            client.send(struct.pack(">6H", number, 0x0100, 1, 0, 0, 0) + name + struct.pack(">2H", 1, 1))
            assert client.recv(4096)[:2] == struct.pack(">H", number)
    return count


PYTHON = """
import json, random, threading, time
kept, arrived = [], threading.Barrier(4)
def work(seed):
    chosen, mine = random.Random(seed), []
    for turn in range(3000):
        mine.append({str(chosen.random()): list(range(chosen.randrange(90)))})
        if chosen.random() < 0.4:
            mine.pop(chosen.randrange(len(mine)))
        if turn % 300 == 0:
            mine.append(bytearray(chosen.randrange(200000)))
    kept.append(mine)
    arrived.wait()
    time.sleep(1000)
for seed in range(3):
    threading.Thread(target=work, args=(seed,), daemon=True).start()
large = [bytearray(1 << 20) for _ in range(8)]
del large[::2]
parsed = json.loads(json.dumps([{"a": i, "b": "x" * (i % 600)} for i in range(2000)]))
arrived.wait()
print("ready", flush=True)
time.sleep(1000)
"""


@contextlib.contextmanager
def python(folder: Path) -> Iterator[Daemon]:
    exe = require("python3", "python3")
    (folder / "script.py").write_text(PYTHON)
    with running([exe, "-SE", str(folder / "script.py")], folder) as process:
        wait_for(lambda: b"ready" in (folder / "output").read_bytes(), process, folder)
        wait_for_rest(process.pid)
        yield Daemon(process.pid, str(Path(exe).resolve()), (folder / "output",))


PROGRAMS = {"memcached": memcached, "nginx": nginx, "python": python, "unbound": unbound}


# ---- asking ----


def ask(options: list[str], folder: Path, *commands: str) -> Answers:
    """Run commands in one gdb, each as text and as JSON."""
    folder = Path(tempfile.mkdtemp(dir=folder))
    files = {command: folder / f"{command.replace(' ', '-')}.json" for command in commands}
    arguments = [*options, *gdbrun.load_pack()]
    for command, file in files.items():
        arguments += ["-ex", "echo \\n=====\\n", "-ex", command, "-ex", f"{command} --json={file}"]
    output = preloaded.run_gdb(arguments, cwd=folder)
    envelopes = {command: gdbrun.read_envelope(file, output) for command, file in files.items()}
    return Answers(envelopes, output.out.split("\n=====\n", 1)[1])


def kernel_rss(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Rss: +(\d+) kB", rollup, re.M)[1]) * 1024


def ask_malloc_stats(daemon: Daemon, folder: Path) -> list[tuple[int, int]]:
    """Have the process print its statistics; return each arena's system and in-use bytes."""
    before = [file.stat().st_size for file in daemon.output]
    gdbrun.run_gdb(["-p", str(daemon.pid), "-ex", "call (void) malloc_stats()"], cwd=folder)
    written = "".join(file.read_text()[size:] for file, size in zip(daemon.output, before))
    found = re.findall(r"Arena \d+:\nsystem bytes +=\s+(\d+)\nin use bytes +=\s+(\d+)", written)
    assert found, f"no statistics in {written!r}"
    return sorted((int(system), int(used)) for system, used in found)


# ---- what must hold ----


def check_healthy(answers: Answers) -> None:
    for command, envelope in answers.envelopes.items():
        assert envelope["problems"] == [], command
        assert envelope["complete"] and not envelope["findings"], command
    assert answers.data("triage")["findings"] == []
    assert answers.data("glibc check")["damage"] == []
    assert [line for line in answers.text.splitlines() if len(line) > WIDTH] == []


def check_sums(answers: Answers, threads: int) -> None:
    arenas, mmapped = answers.data("glibc arenas")["arenas"], answers.data("glibc mmapped")
    for row in arenas:
        assert row["walked_bytes"] == row["system_mem"] and row["skipped_bytes"] == 0
        pieces = ("chunk_bytes", "top_chunk_bytes", "overhead_bytes", "foreign_bytes")
        assert row["walked_bytes"] == sum(row[piece] for piece in pieces)
    heaps = answers.data("glibc heaps")["heaps"]
    assert sum(row["top_bytes"] for row in heaps) == sum(row["top_bytes"] for row in arenas)
    assert mmapped["blocks"] == mmapped["expected_blocks"] == len(mmapped["chunks"])
    assert mmapped["bytes"] == mmapped["expected_bytes"]
    of_others = [row for row in answers.data("blocks summary")["arenas"] if row["allocator"] != "glibc"]
    totals = dict(answers.data("blocks summary")["totals"])
    totals["used_blocks"] -= sum(row["used_blocks"] for row in of_others)
    assert totals["used_blocks"] == sum(row["in_use_blocks"] for row in arenas) + mmapped["blocks"]
    assert totals["tcache_bytes"] == sum(row["tcache_bytes"] for row in arenas)
    states = [row["state"] for row in answers.data("glibc chunks")["chunks"]]
    assert states.count("tcache") == totals["tcache_blocks"]
    assert states.count("in use") + states.count("mmapped") == totals["used_blocks"]
    ledger = answers.data("rss")
    assert ledger["residual"] == 0
    assert sum(entry["bytes"] for entry in ledger["entries"]) == ledger["total"]
    caches = answers.data("glibc tcache")["threads"]
    owners = {cache["number"] for cache in caches}
    assert None not in owners and len(owners) == len(caches) <= threads
    assert sum(cache["count"] for cache in caches) == totals["tcache_blocks"]


def figures(answers: Answers, *without: str) -> dict[str, Any]:
    """Return the data by command, less what the way of looking shows: keys that differ by intent."""
    return {command: _without(answers.data(command), {"found_by", *without}) for command in COMMANDS[2:]}


def _without(value: Any, keys: set[str]) -> Any:
    if isinstance(value, dict):
        return {key: _without(each, keys) for key, each in value.items() if key not in keys}
    return [_without(each, keys) for each in value] if isinstance(value, list) else value


def check_library(answers: Answers, stats: list[tuple[int, int]]) -> None:
    """In-use bytes of ``malloc_stats`` are all but bins and top: tcached chunks and headers as well."""
    header = 16
    free = {row["address"]: row["top_chunk_bytes"] for row in answers.data("glibc arenas")["arenas"]}
    for row in answers.data("glibc bins")["bins"]:
        free[row["arena"]] += row["bytes"] + header // 2 * row["count"]
    rows = answers.data("glibc arenas")["arenas"]
    assert sorted((row["system_mem"], row["system_mem"] - free[row["address"]]) for row in rows) == stats


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_real_program_reconciles(name, tmp_path):
    with PROGRAMS[name](tmp_path) as daemon:
        threads = len(list(Path(f"/proc/{daemon.pid}/task").iterdir()))
        before = kernel_rss(daemon.pid)
        live = ask(["-p", str(daemon.pid)], tmp_path, *COMMANDS)
        core = tmp_path / "core"
        gdbrun.run_gdb(["-p", str(daemon.pid), "-ex", f"gcore {core}"], cwd=tmp_path)
        stats = ask_malloc_stats(daemon, tmp_path)
    for answers in (live, ask([*NO_DEBUG_INFO, daemon.exe, str(core)], tmp_path, *COMMANDS)):
        check_healthy(answers)
        check_sums(answers, threads)
        check_library(answers, stats)
    ledger = live.data("rss")
    assert ledger["rss"] >= before // 2
    if os.geteuid() == 0:  # others cannot tell pages shared after a fork, as nginx has, from the zero page
        assert sum(entry["resident"] for entry in ledger["entries"]) == ledger["rss"]
        assert ledger["rss_difference"] == 0
    # by symbols and debug info of the process; by structure alone of its core, which has no thread names
    bare = ask([*NO_DEBUG_INFO, "-core", str(core)], tmp_path, *COMMANDS)
    names = ("name", "owner", "contents")
    assert figures(live, *names) == figures(bare, *names)
