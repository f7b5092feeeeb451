"""Several answers from one gdb: its start costs more than most commands."""

from __future__ import annotations

from typing import Any, Sequence

from tests.support import gdbrun
from tests.support.boards import Stage


def ask(stage: Stage, *commands: str, before: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the envelope of each command, all run in one gdb.

    :param before: commands that are run first, without an answer.
    :raises AssertionError: one gave no JSON; with what gdb wrote.
    """
    files = [stage.directory / f"asked-{id(commands)}-{at}.json" for at in range(len(commands))]
    asked = [f"{command} --json={file}" for command, file in zip(commands, files)]
    output = stage.text(*before, *asked)
    return [gdbrun.read_envelope(file, output) for file in files]
