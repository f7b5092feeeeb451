"""Pythons of Debian's suites that run a script, and wait."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.glibcs import Unavailable
from tests.support.pythons import python
from tests.support.rest import wait_for_rest, wait_until


class Parked:
    """A Python that waits.

    :param script: whose last output is ``parked``; its argument is the path of a file for what it knows.
    :ivar said: its output.
    """

    def __init__(self, version, folder, script, environment=None):
        try:
            found = python(version)
        except Unavailable as reason:
            pytest.skip(str(reason))
        (folder / "script.py").write_text(script)
        output = folder / "output"
        with output.open("wb") as stream:
            command = [*found.command, "-S", str(folder / "script.py"), str(folder / "truth")]
            surroundings = {**found.environment, **(environment or {})}
            self.process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, env=surroundings)
        try:
            wait_until(lambda: "parked" in output.read_text() or self.process.poll() is not None, "a parked Python")
            wait_for_rest(self.process.pid)
        except BaseException:
            self.__exit__()
            raise
        self.said = output.read_text()

    @property
    def pid(self):
        return self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()
