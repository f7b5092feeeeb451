"""Files by build-id from a server on the loopback: whole and right, or not there, whatever the server does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gdbext.errors import UsageError
from gdbext.filecache import debuginfod
from gdbext.filecache.debuginfod import DEBUGINFO, EXECUTABLE, Debuginfod, Limits, check_url
from gdbext.memory.elf.elffile import find_section_build_id, find_soname
from tests.support.cache import cache_dir

FEW = Limits(size=1 << 20, seconds=0.8, silence=0.4)


class Server(BaseHTTPRequestHandler):
    """Gives what ``answers`` has by path; a function of it does as it likes."""

    def do_GET(self):
        self.server.asked.append(self.path)
        found = self.server.answers.get(self.path)
        if callable(found):
            found(self)
        elif found is None:
            self.send_error(404)
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(found)))
            self.end_headers()
            self.wfile.write(found)

    def handle(self):
        with suppress(OSError):  # whoever asked has gone
            super().handle()

    def log_message(self, *arguments):
        pass


@contextmanager
def serving(answers):
    """Have a server; give its address, and the list of what it is asked for."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = True
    server.answers, server.asked = answers, []
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A program: its build-id, its debug info, and itself without that."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "a.c").write_text("int number = 7; int main(void) { return number; }\n")
    line = ["gcc", "-g", "-shared", "-fPIC", "-Wl,-soname,liba.so.1", "-Wl,--build-id", "-o", "a", "a.c"]
    for words in (line, ["objcopy", "--only-keep-debug", "a", "a.debug"], ["strip", "a"]):
        subprocess.run(words, check=True, cwd=folder)
    notes = subprocess.run(["readelf", "-n", folder / "a"], check=True, capture_output=True, text=True).stdout
    build_id = re.search(r"Build ID: ([0-9a-f]+)", notes)[1]
    return build_id, (folder / "a.debug").read_bytes(), (folder / "a").read_bytes()


def paths_of(build_id):
    return f"/buildid/{build_id}/debuginfo", f"/buildid/{build_id}/executable"


def test_what_a_server_has_is_asked_for_once(files, tmp_path):
    build_id, debug, program = files
    with serving(dict(zip(paths_of(build_id), (debug, program)))) as (url, asked):
        for _ in range(2):
            server = Debuginfod(check_url("--debuginfod", url + "/"), str(tmp_path))
            found = server.find(build_id, DEBUGINFO), server.find(build_id, EXECUTABLE)
        assert tuple(Path(path).read_bytes() for path in found) == (debug, program)
        assert found[0].endswith(f"/.build-id/{build_id[:2]}/{build_id[2:]}.debug")
        assert len(asked) == 2 and not server.said
        Debuginfod(url + "/elsewhere", str(tmp_path)).find(build_id, DEBUGINFO)  # another server has its own
    assert asked[2:] == [f"/elsewhere{paths_of(build_id)[0]}"]
    assert all(os.stat(path).st_mode & 0o777 == 0o600 for path in found)


def endless(request):
    request.send_response(200)
    request.end_headers()
    while True:
        request.wfile.write(bytes(1 << 16))


def huge(request):
    request.send_response(200)
    request.send_header("Content-Length", str(1 << 60))
    request.end_headers()
    endless(request)


def silent(request):
    time.sleep(1)


def slow(request):
    request.send_response(200)
    request.send_header("Content-Length", "1000000")
    request.end_headers()
    for _ in range(100):
        request.wfile.write(b"x")
        request.wfile.flush()
        time.sleep(0.05)


def slow_head(request):
    for _ in range(100):
        request.wfile.write(b"H")
        request.wfile.flush()
        time.sleep(0.05)


def cut(request):
    request.send_response(200)
    request.send_header("Content-Length", "1000000")
    request.end_headers()
    request.wfile.write(b"\x7fELF")


def elsewhere(request):
    request.send_response(302)
    request.send_header("Location", "http://127.0.0.1:1/")
    request.end_headers()


def wrong(request):
    request.send_error(503)


@pytest.mark.parametrize(
    "answer, reason",
    [
        (endless, "more than 1"), (huge, "more than 1|no answer in time"), (silent, "no answer in time"),
        (slow, "no answer in time"), (slow_head, "no answer in time|LineTooLong|BadStatusLine"), (cut, "cut short"),
        (elsewhere, "answers 302"), (wrong, "answers 503"), (b"", "no ELF file"), (b"<html>no</html>", "no ELF file"),
        (b"\x7fELF" + b"\xff" * 500, "no ELF file|cut short"),
    ],
)  # fmt: skip
def test_a_hostile_server_gives_nothing_and_that_is_said_once(files, tmp_path, answer, reason):
    build_id, _, _ = files
    began = time.monotonic()
    with serving(dict.fromkeys(paths_of(build_id), answer)) as (url, asked):
        server = Debuginfod(url, str(tmp_path), FEW)
        assert server.find(build_id, DEBUGINFO) is None
        (said,) = server.said
        assert re.search(reason, said) and url in said
        later = Debuginfod(url, str(tmp_path), FEW)
        assert later.find(build_id, DEBUGINFO) is None and not later.said and len(asked) == 1
        later.forget_failures()
        assert later.find(build_id, DEBUGINFO) is None and len(later.said) == 1 and len(asked) == 2
    assert time.monotonic() - began < 3 * FEW.seconds + 2
    left = [name for _, _, names in os.walk(tmp_path) for name in names]
    assert left and all(name.endswith(".failed") for name in left)


def test_a_file_of_another_build_id_is_none(files, tmp_path):
    build_id, debug, program = files
    other = "00" + build_id[2:]
    with serving({paths_of(other)[0]: debug, paths_of(other)[1]: program}) as (url, _):
        server = Debuginfod(url, str(tmp_path))
        assert server.find(other, DEBUGINFO) is None and server.find(other, EXECUTABLE) is None
        assert len(server.said) == 1 and "another build-id" in server.said[0]


def test_a_file_that_was_cut_is_none(files, tmp_path):
    build_id, debug, _ = files

    def begun(request):
        request.send_response(200)
        request.end_headers()
        request.wfile.write(debug[:-100])

    with serving({paths_of(build_id)[0]: begun}) as (url, _):
        server = Debuginfod(url, str(tmp_path))
        assert server.find(build_id, DEBUGINFO) is None and "cut short" in server.said[0]


def test_what_a_server_does_not_have_is_no_failure(files, tmp_path):
    with serving({}) as (url, asked):
        for _ in range(2):
            server = Debuginfod(url, str(tmp_path))
            assert server.find(files[0], DEBUGINFO) is None and not server.said
    assert len(asked) == 1


def test_a_server_that_is_not_there_is_asked_once(files, tmp_path):
    with serving({}) as (url, _):
        pass
    server = Debuginfod(url, str(tmp_path))
    assert server.find(files[0], DEBUGINFO) is None and server.find("00" * 20, DEBUGINFO) is None
    assert len(server.said) == 1 and "refused" in server.said[0]


def test_two_at_once_have_one_download(files, tmp_path):
    build_id, debug, _ = files
    began = threading.Event()

    def waiting(request):
        began.set()
        time.sleep(0.3)
        request.server.answers[request.path] = debug
        request.server.asked.pop()
        request.do_GET()

    found = []
    with serving({paths_of(build_id)[0]: waiting}) as (url, asked):
        threads = [
            threading.Thread(target=lambda: found.append(Debuginfod(url, str(tmp_path)).find(build_id, DEBUGINFO)))
            for _ in range(3)
        ]
        threads[0].start()
        began.wait()
        for thread in threads[1:]:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(set(found)) == 1 and Path(found[0]).read_bytes() == debug and len(asked) == 1


def test_an_identifier_is_hex(tmp_path, monkeypatch):
    monkeypatch.setattr(debuginfod.Debuginfod, "_had", None)
    for build_id in ("../../../etc/passwd", "", "ab", "AB" * 20, "ab" * 200, "abcd\n"):
        assert Debuginfod("http://nowhere", str(tmp_path)).find(build_id, DEBUGINFO) is None


@pytest.mark.parametrize(
    "url", ("file:///etc", "ftp://x", "x", "http://", "http://a:b@c/", "http://x:99999", "http://a/?q", "http://a b")
)
def test_what_is_no_address(url):
    with pytest.raises(UsageError, match="is no address of a server"):
        check_url("--debuginfod", url)


def test_elf_files_say_what_they_are(files, tmp_path):
    build_id, debug, program = files
    for data in (debug, program):
        assert find_section_build_id(lambda at, size, data=data: data[at : at + size]) == build_id
        for end in range(0, len(data), 97):  # cut short: nothing, or the same
            found = find_section_build_id(lambda at, size, data=data[:end]: data[at : at + size])
            assert found in (None, build_id)
            find_soname(lambda at, size, data=data[:end]: data[at : at + size])
    assert find_soname(lambda at, size: program[at : at + size]) == "liba.so.1"


def real_server():
    """Return the line that starts debuginfod: the one that is installed, or Debian's, fetched and unpacked."""
    if shutil.which("debuginfod"):
        return ["debuginfod"]
    place = cache_dir("debuginfod")
    if not (place / "usr").exists():
        packages = ["apt-get", "-qq", "download", "debuginfod", "libmicrohttpd12", "libarchive13"]
        try:
            subprocess.run(packages, cwd=place, check=True, capture_output=True, timeout=60)
            for package in place.glob("*.deb"):
                subprocess.run(["dpkg", "-x", package, place], check=True)
        except (OSError, subprocess.SubprocessError):
            pytest.skip("debuginfod is neither here nor to be had by apt")
    libraries = place / "usr" / "lib" / f"{os.uname().machine}-linux-gnu"
    line = ["env", f"LD_LIBRARY_PATH={libraries}", str(place / "usr" / "bin" / "debuginfod")]
    if subprocess.run([*line, "--version"], capture_output=True).returncode:
        pytest.skip("Debian's debuginfod does not run here")
    return line


def test_the_real_server_gives_the_same(files, tmp_path):
    build_id, debug, stripped = files
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "a.debug").write_bytes(debug)
    (tmp_path / "served" / "a").write_bytes(stripped)
    os.chmod(tmp_path / "served" / "a", 0o755)
    with serving({}) as (url, _):
        port = url.rpartition(":")[2]  # which is free again
    line = [*real_server(), "-F", "-d", str(tmp_path / "db"), "-p", port, "-t", "0", str(tmp_path / "served")]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until, found = time.monotonic() + 20, None
        while found is None and time.monotonic() < until:
            server = Debuginfod(f"http://127.0.0.1:{port}", str(tmp_path / "cache"))
            server.forget_failures()
            found = server.find(build_id, EXECUTABLE) and server.find(build_id, DEBUGINFO)
            time.sleep(0.1)
        assert found is not None and Path(found).read_bytes() == debug
    finally:
        process.kill()
        process.wait()
