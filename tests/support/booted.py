"""A machine that was booted a moment ago: a time namespace, in which the clocks since boot begin anew."""

from __future__ import annotations

import shutil
import subprocess
import time
from typing import Sequence

from tests.support.glibcs import Unavailable

UPTIME = 3  # seconds


def just_booted(*command: str) -> Sequence[str]:
    """Return the command line that runs a command where the machine has been up for :data:`UPTIME` seconds.

    :raises Unavailable: this machine, or this user, cannot make such a place.
    """
    monotonic = UPTIME - int(time.clock_gettime(time.CLOCK_MONOTONIC))
    boottime = UPTIME - int(time.clock_gettime(time.CLOCK_BOOTTIME))
    prefix = ["unshare", "--time", f"--monotonic={monotonic}", f"--boottime={boottime}", "--fork", "--kill-child"]
    if not shutil.which("unshare"):
        raise Unavailable("no unshare on this machine")
    tried = subprocess.run([*prefix, "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if tried.returncode:
        raise Unavailable(f"no time namespace can be made here: {tried.stderr.strip().partition(chr(10))[0]}")
    return [*prefix, *command]
