"""Damages cores and asks in gdb, by the program or in a gdb that has loaded the pack before: a question to each mutant.

The protocol is that of ``worker``. What gdb itself dies or hangs of on the same core is nobody's failure but gdb's.
"""

from __future__ import annotations

import json
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Optional

from tests.fuzz import oracle
from tests.fuzz.image import Mutation
from tests.fuzz.worker import Core, Mutant, Workshop, choose_all, describe
from tests.support import gdbrun, preloaded
from tests.support.cache import CHECKOUT

SECONDS = 60  # of the clock, for one question: gdb and libc's debug info are most of it
ROOM = 3 << 30  # bytes of address space for gdb, numpy and libc's debug info
PROGRAM = 8  # one mutant in so many is asked by the program, the others in a gdb that is a copy of one


def questions(core: Core) -> list[str]:
    """Return the commands for a gdb that knows the program's variables, besides those that need none."""
    details = core.known["truth"].get("details") or {}
    named = [f"walklist {name} --check" for name, one in details.get("lists", {}).items() if one["first"]]
    for group in details.get("groups", {}).values():
        if group.get("tables"):
            named += [f"{name} '*(struct slabhash *) {group['address']}'" for name in ("slabskew", "walklist --check")]
    return [*core.commands, *named]


def run(workshop: Workshop, mutant: Mutant) -> dict[str, Any]:
    """Make a mutant, ask it, and return a line of the journal."""
    mutation, core = workshop.make(mutant), workshop.core(mutant.core)
    if mutation is None:
        return {**describe(workshop, mutant), "outcome": "nothing to damage"}
    known = questions(core)
    # where damage must be reported, the check says so
    stated = mutant.commands or mutation.reported
    command = workshop.questions(mutant)[-1] if stated else known[mutant.number % len(known)]
    line: dict[str, Any] = {**describe(workshop, mutant), "commands": [command]}
    started = time.monotonic()
    try:
        ask = _program if mutant.number % PROGRAM == 0 else _preloaded
        line["outcome"] = ask(workshop, core, command, mutation)
    except oracle.Failure as failure:
        line.update(outcome="failure", failure=str(failure), what=mutation.what)
    return {**line, "seconds": round(time.monotonic() - started, 2)}


def _program(workshop: Workshop, core: Core, command: str, mutation: Mutation) -> str:
    """Ask by the program ``gdbext``, for text."""
    executable = ["--exe", core.known["executable"]] if core.known["executable"] else []
    words = [str(CHECKOUT / "bin" / "gdbext"), *shlex.split(command), "--core", str(workshop.path), *executable]
    status, out, err = _run([*words, "--debug-dir", core.known["debug_dir"], "--timeout", str(SECONDS)])
    oracle.check_text(out + err)
    failed = status not in (0, 1, 2, 3) or (status == 2 and "Traceback" not in err and re.search("gdb (gave|was)", err))
    if failed and not _gdb_alone_fails(workshop, core):
        raise oracle.Failure(f"exit status {status}: {err.strip()[-160:]}")
    if "Traceback" in err:
        raise oracle.Failure(f"traceback: {err.strip().splitlines()[-1][:100]}")
    if mutation.lost and status == 0 and command.startswith(oracle.WALKED):
        raise oracle.Failure(f"complete without what was taken away: {command}")
    return "error:refused" if status == 2 else "answered"


def _preloaded(workshop: Workshop, core: Core, command: str, mutation: Mutation) -> str:
    """Ask in a gdb with the pack, a copy of one that has loaded it before, for JSON."""
    answer = workshop.path.with_name("answer")
    answer.unlink(missing_ok=True)
    words = ["-iex", f"set debug-file-directory {core.known['debug_dir']}", *_files(workshop, core)]
    words += [*gdbrun.load_pack(), "-ex", f"gx {command} --json={answer}"]
    try:
        err = preloaded.run_gdb(words, SECONDS, indexed=True).err
    except AssertionError as late:
        err = str(late)
    document = json.loads(answer.read_text()) if answer.exists() else {}
    if "Traceback" in err or (document.get("error") or {}).get("kind") == "internal":
        raise oracle.Failure(f"traceback: {err.strip().splitlines()[-1][:100]}")
    if not document and _gdb_alone_fails(workshop, core):
        return "error:gdb"
    if not document:
        raise oracle.Failure(f"gdb has ended: {err.strip()[-160:]}")
    return _judged(command, document, mutation)


def _files(workshop: Workshop, core: Core) -> list[str]:
    executable = core.known["executable"]
    return [executable, str(workshop.path)] if executable else ["-core", str(workshop.path)]


def _judged(command: str, document: dict[str, Any], mutation: Mutation) -> str:
    error, problems = document.get("error"), document.get("problems") or []
    if error:
        return f"error:{error['kind']}"
    if mutation.reported and len(problems) <= mutation.usual:
        raise oracle.Failure(f"not reported: {mutation.reported}")
    if mutation.lost and command.startswith(oracle.WALKED) and document["complete"]:
        raise oracle.Failure(f"complete without what was taken away: {command}")
    return "answered"


def _run(words: list[str]) -> tuple[Optional[int], str, str]:
    """Run a program, bounded; return its status (None: it had to be killed), and what it wrote."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=gdbrun.environment(),
            start_new_session=True, preexec_fn=_bound,
        )  # fmt: skip
        try:
            status: Optional[int] = process.wait(SECONDS + 15)
        except subprocess.TimeoutExpired:
            status = None
        gdbrun.kill_group(process)
        return status, gdbrun.content(out), gdbrun.content(err)


def _bound() -> None:
    gdbrun.die_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _gdb_alone_fails(workshop: Workshop, core: Core) -> bool:
    """Whether gdb without gdbext dies or hangs of the same core."""
    words = [gdbrun.gdb_program(), "-nx", "-batch", "-iex", f"set debug-file-directory {core.known['debug_dir']}"]
    asked = ["-ex", "info threads", "-ex", "bt", "-ex", "echo REACHED\\n"]
    status, out, _ = _run([*words, *_files(workshop, core), *asked])
    return status is None or "REACHED" not in out


def serve(folder: Path) -> None:
    """Answer batches until there are no more."""
    workshop = Workshop(folder)
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
    for text in sys.stdin:
        for mutant in choose_all(workshop, json.loads(text)):
            print(json.dumps(run(workshop, mutant)), flush=True)
        print(json.dumps({"ended": 0}), flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
