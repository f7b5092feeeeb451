"""Debian's servers on jemalloc, each put to work, and what jemalloc in them says of itself when gdb has it asked."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import os
import random
import re
import resource
import socket
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from tests.gdb.test_real_programs import READY, Daemon, accepts, require, resolve, running, wait_for
from tests.support.jetruth import JeTruth, read_stats
from tests.support.ports import free_port
from tests.support.rest import wait_for_switches

KEYS = 100_000  # that redis is loaded with
VALUES = 12  # sizes of values are spread evenly over so many powers of two


@dataclass
class Redis:
    """A connection to a redis-server."""

    daemon: Daemon
    stream: Any

    def ask(self, *words: str) -> str:
        """Send one command and return the text that it answers."""
        self.send([words])
        line = self.stream.readline()
        assert line[:1] in b"+$=", line
        return (line[1:] if line[:1] == b"+" else self.stream.read(int(line[1:]) + 2)).decode().strip()

    def send(self, commands: list[tuple[str, ...]]) -> None:
        """Send commands at once."""
        for words in commands:
            pieces = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
            self.stream.write(f"*{len(words)}\r\n{pieces}".encode())
        self.stream.flush()

    def load(self, keys: int) -> None:
        """Leave so many keys of mixed sizes; another quarter was there and is deleted."""
        chosen = random.Random(1)
        every = range(keys * 5 // 4)
        self._done([("SET", f"key:{one}", "x" * int(2 ** chosen.uniform(0, VALUES))) for one in every])
        self._done([("DEL", f"key:{one}") for one in chosen.sample(every, keys // 4)])
        assert int(self.ask("INFO", "keyspace").partition("keys=")[2].partition(",")[0]) == keys

    def _done(self, commands: list[tuple[str, ...]]) -> None:
        for first in range(0, len(commands), 1000):
            part = commands[first : first + 1000]
            self.send(part)
            assert {self.stream.readline() for _ in part} <= {b"+OK\r\n", b":1\r\n"}

    def memory(self) -> dict[str, int]:
        """Return what INFO knows of the allocator: redis asks jemalloc ten times a second, not for INFO."""
        wait_for_switches(self.daemon.pid, 4)
        found = re.findall(r"^allocator_(allocated|active|resident):(\d+)", self.ask("INFO", "memory"), re.M)
        return {name: int(number) for name, number in found}

    def settled(self) -> dict[str, int]:
        """Return it when it stays the same while one asks."""
        told = [self.memory() for _ in range(4)]
        end = time.monotonic() + READY
        while any(one != told[-1] for one in told[-4:]):
            assert time.monotonic() < end, f"redis does not come to rest: {told[-4:]}"
            told.append(self.memory())
        return told[-1]


@contextlib.contextmanager
def redis(folder: Path, keys: int) -> Iterator[Redis]:
    """Run a redis-server with so many keys; a signal that ends it leaves the kernel's core."""
    exe, port = require("redis-server", "redis-server"), free_port()
    quiet = ["--save", "", "--appendonly", "no", "--crash-log-enabled", "no"]
    command = [exe, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), *quiet]
    with running(command, folder) as process:
        hard = resource.prlimit(process.pid, resource.RLIMIT_CORE)[1]
        resource.prlimit(process.pid, resource.RLIMIT_CORE, (hard, hard))
        wait_for(lambda: accepts(port), process, folder)
        with socket.create_connection(("127.0.0.1", port), READY) as client, client.makefile("rwb") as stream:
            server = Redis(Daemon(process.pid, str(Path(exe).resolve()), (folder / "output",)), stream)
            server.load(keys)
            yield server


NAMED = """
options {{
  directory "{folder}"; pid-file none; session-keyfile none; recursion no; dnssec-validation no;
  listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; managed-keys-directory "{folder}";
}};
controls {{ }};
zone "test" {{ type primary; file "zone"; notify no; }};
"""
ZONE = "$TTL 60\n@ IN SOA ns.test. root.test. 1 60 60 60 60\n@ IN NS ns\nns IN A 127.0.0.1\n"


@contextlib.contextmanager
def named(folder: Path, environment: dict[str, str]) -> Iterator[Daemon]:
    """Run BIND with a zone of a thousand names that are asked for."""
    exe, port = require("named", "bind9"), free_port()
    (folder / "named.conf").write_text(NAMED.format(folder=folder, port=port))
    (folder / "zone").write_text(ZONE + "".join(f"h{n} IN A 10.0.{n // 250}.{n % 250}\n" for n in range(1000)))
    with running([exe, "-g", "-n", "4", "-c", str(folder / "named.conf")], folder, environment) as process:
        wait_for(lambda: resolve(port, 1), process, folder)
        assert resolve(port, 3000) == 3000
        yield Daemon(process.pid, exe, (folder / "output",))


class _Pages(http.server.BaseHTTPRequestHandler):
    """Pages of many sizes; the path is the size."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # an answer is one packet: nobody waits for an acknowledgement

    def do_GET(self) -> None:
        size = int(self.path.strip("/"))
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.send_header("Cache-Control", "max-age=1000")
        self.end_headers()
        self.wfile.write(b"x" * size)

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def _pages() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def varnish(folder: Path, environment: dict[str, str]) -> Iterator[Daemon]:
    """Run varnishd with a few hundred objects in its cache; the child does the work."""
    exe, port = require("varnishd", "varnish"), free_port()
    require("gcc", "gcc")
    with _pages() as behind:
        place = ["-n", str(folder / "varnish"), "-j", "none", "-s", "malloc,64m"]
        command = [exe, "-F", *place, "-a", f"127.0.0.1:{port}", "-b", f"127.0.0.1:{behind}"]
        with running(command, folder, environment) as process:
            wait_for(lambda: accepts(port), process, folder)
            fetch(port, 2000)
            child = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0]
            yield Daemon(int(child), exe, (folder / "output",))


def fetch(port: int, count: int) -> None:
    """Ask for pages of 400 sizes over a few connections."""
    connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=READY) for _ in range(8)]
    for number in range(count):
        connection, size = connections[number % 8], number % 400 * 97
        connection.request("GET", f"/{size}")
        assert len(connection.getresponse().read()) == size
    for connection in connections:
        connection.close()


SERVERS: dict[str, Callable[[Path, dict[str, str]], contextlib.AbstractContextManager[Daemon]]] = {
    "named": named,
    "varnish": varnish,
}


# ---- jemalloc's own words ----


@dataclass(frozen=True)
class Teller:
    """What is preloaded into programs so that their jemalloc can be asked (``data/jemalloc_told.c``).

    :param folder: where the answers appear.
    """

    folder: Path
    environment: dict[str, str]

    def ask(self, pid: int) -> JeTruth:
        """Return what jemalloc in a process says now."""
        answer = self.folder / f"{pid}.json"
        answer.unlink(missing_ok=True)
        ask = self.folder / f"{pid}.ask"
        end = time.monotonic() + READY
        while not ask.exists() and time.monotonic() < end:
            time.sleep(0.05)
        os.close(os.open(ask, os.O_RDWR))
        while not answer.exists() and time.monotonic() < end:
            time.sleep(0.01)
        stats = answer.read_text()
        return JeTruth({"stats": stats, "version": read_stats(stats)["version"].split("-")[0]})


def make_teller(folder: Path) -> Teller:
    """Build it."""
    library, answers = folder / "told.so", folder / "told"
    answers.mkdir()
    gcc = require("gcc", "gcc")
    source = Path(__file__).parent / "data" / "jemalloc_told.c"
    subprocess.run([gcc, "-shared", "-fPIC", "-O1", "-pthread", "-o", library, source], check=True)
    return Teller(answers, {"LD_PRELOAD": str(library), "JEMALLOC_TOLD": str(answers)})


def need_kernel_core() -> None:
    """Skip where the kernel does not write cores into the working folder."""
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if pattern.startswith("|") or "/" in pattern:
        pytest.skip(f"the kernel puts cores elsewhere: core_pattern is {pattern}")
