"""Runs mutants by the thousand, writes down what came of them, and goes on where it was stopped.

The journal is one line of JSON for each batch: how many mutants of which mutator had which outcome, and every failure
whole. The number of a mutant is all that it needs, so that a campaign is resumed by the next number.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, Optional, Sequence

from tests.fuzz import cores
from tests.support.cache import CHECKOUT

BATCH = 100
SEEDS = Path(__file__).with_name("seeds.jsonl")
KERNELS = ("native", "reference")
JOURNAL = "journal.jsonl"


class Worker:
    """A process that asks the library, with one of the two kernels.

    :param door: the module that it runs: the library without gdb, or the program with it.
    """

    def __init__(self, folder: Path, kernels: str, door: str = "tests.fuzz.worker") -> None:
        self.kernels = kernels
        self.errors = folder / f"{kernels}.err"
        with open(self.errors, "ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", door, str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=CHECKOUT,
                env={**os.environ, "GDBEXT_KERNELS": kernels, "PYTHONPATH": str(CHECKOUT)},
                text=True,
            )

    def ask(self, question: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Iterate over the lines of one batch; a mutant that ends its process is a failure, and the last."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        begun: Optional[dict[str, Any]] = None
        for text in self._process.stdout:
            line = json.loads(text)
            if "begun" in line:
                begun = line
            elif "outcome" in line:
                begun = None
                yield {**line, "kernels": self.kernels}
            else:
                if begun is not None:
                    yield self._death(begun, line.get("died", 0))
                return
        raise AssertionError(f"the worker itself has ended: see {self.errors}")

    def _death(self, begun: Mapping[str, Any], status: int) -> dict[str, Any]:
        signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        failure = {27: "hang", 0: "worker ended"}.get(signal, f"died of signal {signal}")
        told = self.errors.read_text(errors="replace")[-3000:]
        return {**begun["begun"], "outcome": "failure", "failure": failure, "trace": told, "kernels": self.kernels}

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def run_mutants(worker: Worker, mutants: Iterable[Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Run mutants by core, mutator, number and commands; after one that ends its process the next go on in another."""
    left = [list(one) for one in mutants]
    while left:
        lines = list(worker.ask({"mutants": left}))
        yield from lines
        left = left[max(len(lines), 1) :]


def run_numbers(worker: Worker, first: int, count: int) -> Iterator[dict[str, Any]]:
    """Run the mutants of some numbers."""
    done = 0
    while done < count:
        lines = list(worker.ask({"numbers": list(range(first + done, first + count))}))
        yield from lines
        done += max(len(lines), 1)


def read_seeds() -> list[dict[str, Any]]:
    """Return the mutants that failed once: each with its core, mutator and number, and what was wrong."""
    return [json.loads(line) for line in SEEDS.read_text().splitlines() if line]


def summary(lines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a line of the journal."""
    tried: dict[str, Counter[str]] = {}
    failures = []
    for line in lines:
        tried.setdefault(line["mutator"], Counter())[_outcome(line)] += 1
        if line["outcome"] == "failure":
            failures.append(line)
    return {"tried": tried, "failures": failures}


def _outcome(line: Mapping[str, Any]) -> str:
    """Return an outcome in one word: what failed, the kinds of errors, or an answer."""
    outcome: str = line["outcome"]
    if outcome in ("failure", "nothing to damage"):
        return outcome
    kinds = {word for word in outcome.split() if word.startswith("error:")}
    return "some refused" if kinds and kinds != set(outcome.split()) else "refused" if kinds else "answered"


def table(journal: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Iterate over the lines of the table at the end: tried and failed, by mutator; failures by class."""
    sums: dict[str, Counter[str]] = {}
    for batch in journal:
        for mutator, outcomes in batch["tried"].items():
            sums.setdefault(mutator, Counter()).update(outcomes)
    columns = sorted({outcome for outcomes in sums.values() for outcome in outcomes})
    yield " ".join(["mutator".ljust(26), "tried".rjust(7), *(one.rjust(17) for one in columns)])
    for mutator, outcomes in [*sorted(sums.items()), ("all", sum(sums.values(), Counter()))]:
        row = [f"{outcomes[one]:17}" for one in columns]
        yield " ".join([mutator.ljust(26), f"{sum(outcomes.values()):7}", *row])
    classes = Counter(one["failure"] for batch in journal for one in batch["failures"])
    first = {one["failure"]: one for batch in reversed(journal) for one in batch["failures"]}
    for failure, count in classes.most_common():
        one = first[failure]
        yield f"{count:6} {failure}   first: {one['core']} {one['mutator']} {one['number']} {one['kernels']}"


def read_journal(folder: Path) -> list[dict[str, Any]]:
    """Return the batches that are done; the last line may be cut."""
    file = folder / JOURNAL
    lines = file.read_text().splitlines() if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def campaign(folder: Path, hours: float, seed: int, door: str, most: int) -> None:
    """Run batches until the time is over or enough were tried, from where the journal ends."""
    for name, reason in cores.build(folder).items():
        print(f"without {name}: {reason}")
    end, journal = time.monotonic() + 3600 * hours, read_journal(folder)
    following = max((batch["next"] for batch in journal), default=seed)
    with ExitStack() as stack:
        workers = [Worker(folder, kernels, door) for kernels in (KERNELS if door.endswith("worker") else KERNELS[:1])]
        for worker in workers:
            stack.callback(worker.close)
        while time.monotonic() < end and (not most or following < seed + most):
            worker = workers[following // BATCH % len(workers)]
            batch = {"next": following + BATCH, **summary(run_numbers(worker, following, BATCH))}
            with open(folder / JOURNAL, "a") as file:
                file.write(json.dumps(batch) + "\n")
            following += BATCH
            for one in batch["failures"]:
                print(f"{one['failure']}: {one['core']} {one['mutator']} {one['number']}", flush=True)
    print("\n".join(table(read_journal(folder))))


def replay(folder: Path, text: Sequence[str]) -> None:
    """Run one mutant: CORE MUTATOR NUMBER [KERNELS]."""
    name, mutator, number, *kernels = text
    cores.build(folder, [name])
    worker = Worker(folder, *(kernels or KERNELS[:1]))
    for line in run_mutants(worker, [(name, mutator, int(number))]):
        print(json.dumps(line, indent=1).replace("\\n", "\n"))
    worker.close()


def main() -> None:
    """Answer the command line."""
    parser = argparse.ArgumentParser(prog="tests/fuzz/run", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--most", type=int, default=0, help="mutants; 0 is as many as there is time for")
    parser.add_argument("--gdb", action="store_true", help="ask the program with gdb, not the library without")
    parser.add_argument("--seed", type=int, default=0, help="the first number")
    parser.add_argument("--resume", type=Path, default=Path("fuzz"), metavar="DIR", help="where cores and journal are")
    parser.add_argument("--replay", nargs="+", metavar="CORE MUTATOR NUMBER [KERNELS]", help="one mutant")
    chosen = parser.parse_args()
    if chosen.replay:
        replay(chosen.resume, chosen.replay)
        return
    door = "tests.fuzz.gdbdoor" if chosen.gdb else "tests.fuzz.worker"
    campaign(chosen.resume.resolve(), chosen.hours, chosen.seed, door, chosen.most)


if __name__ == "__main__":
    main()
