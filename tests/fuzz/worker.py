"""Damages cores and asks the library about them, in processes that may die of it: one fork for each batch.

Run as a program it reads batches from standard input, a line of JSON each, and writes a line for each mutant, and
``{"died": STATUS}`` where the process of the batch has ended early. Kernels are chosen by ``GDBEXT_KERNELS``.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

import gdbext
from tests.fuzz import oracle
from tests.fuzz.draw import Draw, NotHere
from tests.fuzz.image import Image, Mutation
from tests.fuzz.mutators import MUTATORS, Mutator
from tests.fuzz.places import Places, read_places
from tests.fuzz.stated import STATED


def several(draw: Draw) -> None:
    """Some of the others together."""
    for name in draw.random.choices(list(MUTATORS), k=draw.random.randint(2, 6)):
        with contextlib.suppress(NotHere):
            MUTATORS[name](draw)
    draw.mutation.harmless = draw.mutation.lost = False


ALL: dict[str, Mutator] = {**MUTATORS, "several": several, **STATED}
QUESTIONS = 2  # to each mutant


@dataclass(frozen=True)
class Mutant:
    """One damaged core, and what it is asked.

    :param number: all else follows from it, and from the core and the mutator.
    :param commands: what it is asked; none: what its number asks.
    """

    core: str
    mutator: str
    number: int
    commands: Sequence[str] = ()


class Core:
    """One core of the campaign, undamaged."""

    def __init__(self, folder: Path, name: str) -> None:
        self.image = Image(folder / f"{name}.core")
        self.known: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
        self.places: Places = read_places(self.image, self.known["truth"])
        structs = self.places.structs
        self.allocator = "jemalloc" if "arena" in structs else "glibc" if "malloc_state" in structs else ""
        # of its files or of their debug info; read before anything forks
        self.symbols = oracle.read_symbols(self.image.path, Path(self.known["debug_dir"]))
        self.commands = oracle.commands(self.allocator, self.known["truth"], self.places.block)

    @functools.cached_property
    def mutators(self) -> list[str]:
        """The names of the mutators that find something in it to damage."""
        return [name for name in ALL if any(self.mutate(name, number) is not None for number in range(20))]

    def mutate(self, mutator: str, number: int) -> Optional[Mutation]:
        """Return the mutation of a seed, or None where there is nothing to damage."""
        draw = Draw(self.image, self.places, f"{mutator} {number}")
        try:
            ALL[mutator](draw)
        except NotHere:
            return None
        draw.mutation.usual = self.usual
        return draw.mutation

    @functools.cached_property
    def usual(self) -> int:
        """The number of problems that the check of this core has without damage."""
        check = oracle.check_command(self.allocator)
        with gdbext.open_core(self.image.path) as session:
            return len(session.run(check).problems) if check else 0


class Workshop:
    """The cores of a folder, and room for one mutant."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = sorted(path.stem for path in folder.glob("*.json"))
        shared = Path("/dev/shm")
        self.place = tempfile.TemporaryDirectory(prefix="gdbext-fuzz-", dir=shared if shared.is_dir() else None)
        self.path = Path(self.place.name) / "core"

    @functools.lru_cache(maxsize=None)  # noqa: B019  one workshop lives as long as its process
    def core(self, name: str) -> Core:
        """Return a core, read once."""
        return Core(self.folder, name)

    def choose(self, number: int) -> Mutant:
        """Return the mutant of a number."""
        chosen = random.Random(number)
        name = chosen.choice(self.names)
        core = self.core(name)
        mutator = chosen.choice(core.mutators)
        return Mutant(name, mutator, number)

    def questions(self, mutant: Mutant) -> Sequence[str]:
        """Return what a mutant is asked: a few commands, and the check where it is known what that must say."""
        if mutant.commands:
            return mutant.commands
        core, first = self.core(mutant.core), mutant.number * QUESTIONS
        asked = [core.commands[at % len(core.commands)] for at in range(first, first + QUESTIONS)]
        mutation, check = core.mutate(mutant.mutator, mutant.number), oracle.check_command(core.allocator)
        if mutation and check and (mutation.reported or mutation.harmless):
            asked.append(check)
        if mutation and mutation.lost:
            asked.append("blocks summary")
        return asked

    def make(self, mutant: Mutant) -> Optional[Mutation]:
        """Write a mutant's core to :attr:`path`; None where there is nothing to damage."""
        core = self.core(mutant.core)
        mutation = core.mutate(mutant.mutator, mutant.number)
        if mutation is not None:
            core.image.write(self.path, mutation)
        return mutation


def describe(workshop: Workshop, mutant: Mutant) -> dict[str, Any]:
    """Return what says which mutant it is."""
    asked = list(workshop.questions(mutant))
    return {"core": mutant.core, "mutator": mutant.mutator, "number": mutant.number, "commands": asked}


def run(workshop: Workshop, mutant: Mutant) -> dict[str, Any]:
    """Make a mutant, ask it, and return a line of the journal."""
    line, asked = describe(workshop, mutant), workshop.questions(mutant)
    mutation = workshop.make(mutant)
    if mutation is None:
        return {**line, "outcome": "nothing to damage"}
    core, started = workshop.core(mutant.core), time.process_time()
    signal.setitimer(signal.ITIMER_PROF, oracle.seconds(core.image.bytes))
    try:
        line["outcome"] = oracle.ask(workshop.path, asked, mutation, core.symbols if mutant.number % 2 else None)
    except Exception as error:  # noqa: BLE001  that there is any is the finding
        line.update(outcome="failure", failure=oracle.describe(error), what=mutation.what)
        line["trace"] = traceback.format_exc()[-3000:]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return {**line, "seconds": round(time.process_time() - started, 2)}


def limit(workshop: Workshop, mutants: Sequence[Mutant]) -> None:
    """Bound this process by its largest core: more memory than that explains is a MemoryError, more time SIGPROF."""
    images = [workshop.core(one.core).image for one in mutants]
    most = _address_space() + max(oracle.room(one.bytes, one.size) for one in images)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    faulthandler.register(signal.SIGPROF, all_threads=True, chain=True)
    faulthandler.enable()


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def warm(core: Core) -> None:
    """Ask an undamaged core everything."""
    oracle.ask(core.image.path, core.commands, Mutation())


def choose_all(workshop: Workshop, question: Mapping[str, Any]) -> list[Mutant]:
    """Return the mutants of a batch: those of its numbers, or those that it names by core, mutator and number."""
    if "numbers" in question:
        return [workshop.choose(number) for number in question["numbers"]]
    return [Mutant(*one) for one in question["mutants"]]


def serve(folder: Path) -> None:
    """Answer batches until there are no more."""
    workshop = Workshop(folder)
    for name in workshop.names[:1]:  # what commands import is imported once, not in each fork
        warm(workshop.core(name))
    for text in sys.stdin:
        mutants = choose_all(workshop, json.loads(text))
        pid = os.fork()
        if pid == 0:
            _child(workshop, mutants)
        status = os.waitpid(pid, 0)[1]
        _say({"ended": status} if status == 0 else {"died": status})


def _child(workshop: Workshop, mutants: Sequence[Mutant]) -> None:
    try:
        limit(workshop, mutants)
        for mutant in mutants:
            _say({"begun": describe(workshop, mutant)})
            _say(run(workshop, mutant))
    except BaseException:  # noqa: BLE001  said by the status
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
