"""Jobs run one after the other on one core, each in a process of its own, and compared pair by pair."""

from __future__ import annotations

import json
import math
import os
import re
import resource
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Mapping, Optional, Sequence

HERE = Path(__file__).resolve().parent
LOAD = HERE.parent / "gdbext" / "load.py"
ANSWER = "answer.json"
SMALL = "small"
GDB = ("gdb", "-nx", "-batch", "-iex", "set auto-load off")
_SECONDS = 1800  # a job that takes longer is given up


@dataclass(frozen=True)
class Job:
    """What is run on a core.

    :param commands: of gdb; or, with ``program``, nothing.
    :param program: another program's words; ``{program}`` and ``{core}`` stand for the files.
    :param input: what it reads on standard input.
    :param start: the name of the job that does the same without the work, to be subtracted.
    :param small: runs on the core of the folder ``small`` beside the core: the same program with next to no data.
    :param fixed: the name of the job that does the same on the small core, to be subtracted.
    :param live: runs on the process whose id is in the file ``pid`` beside the core, instead of the core.
    :param optional: one of ours that has no answer on some cores; its status says so.
    :param limit: seconds after which it is ended, as its row says; without, the run is given up after half an hour.
    """

    name: str
    commands: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    program: Sequence[str] = ()
    input: str = ""
    start: str = ""
    limit: Optional[float] = None
    small: bool = False
    fixed: str = ""
    live: bool = False
    optional: bool = False

    def words(self, program: Path, core: Path) -> list[str]:
        """Return the command line."""
        if self.program:
            return [word.format(program=program, core=core) for word in self.program]
        target = (core.parent / "pid").read_text() if self.live else str(core)
        return [*GDB, str(program), target, *(word for line in self.commands for word in ("-ex", line))]

    @property
    def answers(self) -> bool:
        """Whether it is one of ours, whose answer is looked at."""
        return any(ANSWER in command for command in self.commands)


def ours(name: str, command: str, kernels: str = "") -> Job:
    """Return the job that loads gdbext and runs a command, for the JSON only; the working folder gets it."""
    environment = {"GDBEXT_KERNELS": kernels} if kernels else {}
    return Job(name, (f"source {LOAD}", f"{command} --json={ANSWER}"), environment, start="gdbext start only")


def with_live(job: Job) -> tuple[Job, Job]:
    """Return a job, and the same on a process."""
    start = job.start and f"{job.start}, live"
    return job, replace(job, name=f"{job.name}, live", live=True, start=start)


def with_small(job: Job) -> tuple[Job, Job]:
    """Return a job, and the same on the small core: what does not grow with the data."""
    small = replace(job, name=f"{job.name}, no data", start="", small=True)
    return replace(job, fixed=small.name), small


START = Job("gdb start only", ("print 1",))
FLOOR = Job("the core read once", program=("{program.parent}/floor", "{core}"))
STACKS = Job("gdb, a frame of all threads", ("thread apply all backtrace 1",))
OUR_START = Job("gdbext start only", (f"source {LOAD}", "gx commands --json=commands.json"))


@dataclass(frozen=True)
class Run:
    """One run of a job; seconds and MB (10^6 bytes)."""

    wall: float
    cpu: float
    anonymous: float
    mapped: float
    status: int = 0


def run_job(job: Job, program: Path, core: Path) -> Run:
    """Run a job to its end.

    :raises SystemExit: when a job of ours gave no answer, or a job takes too long: a failure is fast.
    """
    core = core.parent / SMALL / core.name if job.small else core
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    environment = {**os.environ, **job.environment}
    with tempfile.TemporaryFile("w+") as given:
        given.write(job.input)
        given.seek(0)
        process = subprocess.Popen(
            job.words(program, core), cwd=core.parent, env=environment, stdin=given,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        anonymous, mapped = _watch(process, start, job.limit)
    wall = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    status = process.returncode if job.program else _check(job, core.parent)
    return Run(wall, cpu, anonymous, mapped, status)


def _watch(process: "subprocess.Popen[bytes]", start: float, limit: Optional[float]) -> tuple[float, float]:
    """Wait for a process; return its peaks of anonymous memory and of mapped files."""
    anonymous = mapped = 0.0
    while process.poll() is None:
        anonymous, mapped = max(anonymous, _resident(process.pid, "Anon")), max(mapped, _resident(process.pid, "File"))
        time.sleep(0.01)
        if limit and time.monotonic() - start > limit:
            process.terminate()
            process.wait()
        elif time.monotonic() - start > _SECONDS:
            process.kill()
            raise SystemExit(f"bench/run: a job took more than {_SECONDS} s")
    return anonymous, mapped


def _resident(pid: int, kind: str) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(rf"Rss{kind}:\s+(\d+)", status)
    return int(found[1]) * 1024 / 1e6 if found else 0.0


def _check(job: Job, folder: Path) -> int:
    """Return 0 where there is an answer, and 2 where one may be missing."""
    if not job.answers:
        return 0
    answer = folder / ANSWER
    answered = answer.exists() and json.loads(answer.read_text())["data"] is not None
    if not answered and not job.optional:
        raise SystemExit(f"bench/run: {job.name} gave no answer")
    answer.unlink(missing_ok=True)
    return 0 if answered else 2


@dataclass(frozen=True)
class Row:
    """Medians of a job's runs.

    :param faster: times faster than the baseline in wall time, everything included.
    :param beyond_start: the same with the starts of both subtracted; None where there is no start, or in most rounds
        nothing is left.
    :param beyond_fixed: the same with that subtracted from both which the same job takes without data.
    :param status: with which it ended, of all runs the worst; negative for one that was ended.
    :param starts: CPU time of each round in that of gdb's start in the same round; empty where gdb was not started.
    """

    name: str
    wall: float
    cpu: float
    anonymous: float
    mapped: float
    faster: Optional[float]
    beyond_start: Optional[float]
    status: int = 0
    beyond_fixed: Optional[float] = None
    starts: Sequence[float] = ()


def compare(jobs: Sequence[Job], repeat: int, program: Path, core: Path) -> list[Row]:
    """Run all jobs so many times, in turns; the first is the baseline, and each round gives one ratio."""
    rounds: list[dict[str, Run]] = []
    for _ in range(repeat):
        rounds.append({job.name: run_job(job, program, core) for job in jobs})
    return [_row(job, jobs[0], rounds) for job in jobs]


def _row(job: Job, baseline: Job, rounds: Sequence[Mapping[str, Run]]) -> Row:
    runs = [each[job.name] for each in rounds]
    figures = ("wall", "cpu", "anonymous", "mapped")
    middle = [statistics.median(getattr(run, name) for run in runs) for name in figures]
    status = max((run.status for run in runs), key=abs)
    faster = statistics.median(each[baseline.name].wall / each[job.name].wall for each in rounds)
    beyond_start = _beyond(job, baseline, rounds, job.start, baseline.start or START.name)
    beyond_fixed = _beyond(job, baseline, rounds, job.fixed, baseline.fixed)
    starts = [each[job.name].cpu / each[START.name].cpu for each in rounds if START.name in each]
    return Row(job.name, *middle, faster, beyond_start, status, beyond_fixed, starts)


def _beyond(job: Job, baseline: Job, rounds: Sequence[Mapping[str, Run]], ours: str, theirs: str) -> Optional[float]:
    """Return how many times faster a job is without what two other jobs take, or None where that is not measured.

    A round in which nothing is left counts as beyond all ratios: one start that was held up leaves the others' median.
    """
    if ours not in rounds[0] or theirs not in rounds[0]:
        return None
    ratios = []
    for each in rounds:
        left = each[job.name].wall - each[ours].wall
        ratios.append((each[baseline.name].wall - each[theirs].wall) / left if left > 0 else math.inf)
    middle = statistics.median(ratios)
    return middle if math.isfinite(middle) else None
