"""The test program ``growing``: run step by step, or to a core behind each of its steps."""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Sequence

from tests.support import programs
from tests.support.glibcs import glibc

_STEPS = """
set pagination off
set debuginfod enabled off
set disable-randomization off
break stepped
run {arguments} < /dev/null > {said}
python
for number in range({steps}):
    if number in {wanted}:
        gdb.execute(f'generate-core-file {folder}/core.{{number}}')
    gdb.execute('continue' if number < {steps} - 1 else 'kill')
end
"""


class Growing:
    """One process; it stands still but for its steps.

    :ivar held: what it says that it holds: blocks and bytes by what it does.
    """

    def __init__(self, what: str, seed: int) -> None:
        command = [str(built()), "--what", what, "--seed", str(seed)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.held = self._read()

    def step(self) -> None:
        """Have it make one step more."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.held = self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        held: dict[str, Any] = json.loads(self.process.stdout.readline())
        return held


def built() -> Path:
    """Return the program."""
    return programs.build("growing", glibc("system"))


@contextmanager
def running(what: str, seed: int = 1) -> Iterator[Growing]:
    """Have the program run."""
    here = Growing(what, seed)
    try:
        yield here
    finally:
        here.process.kill()
        here.process.communicate()


def cores(folder: Path, what: str, wanted: Sequence[int], seed: int = 1) -> list[Path]:
    """Return cores of one process behind the steps of these numbers, from 0 on, written two seconds apart each."""
    folder.mkdir(exist_ok=True)
    steps, arguments = max(wanted) + 1, f"--what {what} --steps {max(wanted) + 1} --seed {seed}"
    script = folder / "steps.gdb"
    script.write_text(
        _STEPS.format(arguments=arguments, said=folder / "said", steps=steps, wanted=set(wanted), folder=folder)
    )
    done = subprocess.run(
        ["gdb", "-nx", "-q", "-batch", "-x", str(script), str(built())], capture_output=True, text=True, timeout=120
    )
    made = [folder / f"core.{number}" for number in wanted]
    assert all(core.exists() for core in made), done.stderr
    now = int(time.time())  # no earlier: gdb complains of executables that are newer
    for number, core in zip(wanted, made):
        os.utime(core, (now + 2 * number, now + 2 * number))
    return made
