"""Runs inside gdb: a copy of this gdb for each question, so that gdb, numpy and the pack are loaded once.

Questions come as lines of JSON through the socket whose number is in ``GDBEXT_FORKSERVER``. For each, gdb forks, and
the copy runs the commands as ``-ex`` would and ends. The answer is the copy's process id, and a second line when it
has ended.
"""

import atexit
import contextlib
import ctypes
import importlib
import json
import os
import pkgutil
import signal
import socket
import time

import gdb

PR_SET_PDEATHSIG = 1  # prctl(2)
APART = ("gdbext.load", "gdbext.cli", "gdbext.helpers")  # what no command imports
LOADING = 10.0  # seconds


def load_everything():
    """Import what commands import when they are first used."""
    import gdbext
    from gdbext.starting import dependencies

    dependencies.load(*dependencies.NEEDED)
    for found in pkgutil.walk_packages(gdbext.__path__, "gdbext."):
        if not found.name.startswith(APART):
            importlib.import_module(found.name)


def wait_for_one_thread():
    """Wait until gdb's own threads have gone, which a copy would wait for in vain: it has the thread that forks."""
    end = time.monotonic() + LOADING
    while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < end:
        time.sleep(0.01)


def serve(channel):
    """Answer until the other side is gone, and return None; in each copy, return its question."""
    wait_for_one_thread()
    for line in channel.makefile():
        pid = os.fork()
        if pid == 0:
            return json.loads(line)
        channel.sendall(b"%d\n" % pid)
        os.waitpid(pid, 0)
        channel.sendall(b"ended\n")
    return None


def become(question):
    """Make this copy the gdb that was asked for, and run its commands."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.chdir(question["cwd"])
    write_to(question["out"], question["err"])
    for command in question["commands"]:
        run(command)


def write_to(out, err):
    """Have what is written from now on go to these files."""
    for descriptor, stream, path in ((1, gdb.STDOUT, out), (2, gdb.STDERR, err)):
        gdb.flush(stream)
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, descriptor)
        os.close(file)


def run(command):
    """Run one command; what it raises is printed, and the next one follows."""
    try:
        gdb.execute(command)
    except gdb.error as error:
        gdb.write(f"{error}\n", gdb.STDERR)
    except KeyboardInterrupt:
        gdb.write("Quit\n", gdb.STDERR)


def leave():
    """End as gdb does, but for taking its Python apart: that touches, hence copies, all that was loaded."""
    atexit._run_exitfuncs()
    write_to(os.devnull, os.devnull)
    for inferior in gdb.inferiors():
        if inferior.pid:
            with contextlib.suppress(gdb.error):  # a core
                gdb.execute(f"inferior {inferior.num}")
                gdb.execute("detach" if inferior.was_attached else "kill")
    os._exit(0)


load_everything()
with socket.socket(fileno=int(os.environ.pop("GDBEXT_FORKSERVER"))) as connection:
    asked = serve(connection)
if asked:
    become(asked)
    leave()
