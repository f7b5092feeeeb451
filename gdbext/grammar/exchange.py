"""What the shell program and gdb hand each other: a question, its answer, and a trailer, as files of one folder.

The trailer is written last and whole or not at all. Without it there is no answer, whatever else is there: gdb may die
at any moment.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any, Mapping, Optional, Sequence, TextIO

from gdbext.files import private

SCHEMA_VERSION = 2

SAMPLES = "samples.jsonl"  # the file of a recording
SAMPLE_START = '{"format":"gdbext/sample/'  # how a line of JSON begins that is a sample

_QUESTION, _ANSWER, _TRAILER, _COPY = "question.json", "answer", "trailer.json", "copy.json"


def is_recording(folder: str) -> bool:
    """Whether a folder has what may be a recording."""
    return os.path.isfile(os.path.join(folder, SAMPLES))


@dataclass(frozen=True)
class Question:
    """One command over one target.

    :param command: its name, "blocks leaks".
    :param options: those given, by name, each with its value.
    :param expression: the text besides the options.
    :param words: the same, word by word.
    :param json: whether the answer is JSON, and not text.
    :param core: the core as the user has named it, whatever file gdb has open.
    :param pid: a process to attach to, and to let go; or of which gdb has a copy open.
    :param copied: for how many seconds the process stood still while it was copied; None: there is no copy.
    :param width: characters of a line of text.
    :param color: whether text is coloured.
    :param plain: whether text is ASCII alone.
    """

    command: str
    options: Mapping[str, Any] = field(default_factory=dict)
    expression: str = ""
    words: Sequence[str] = ()
    json: bool = False
    core: Optional[str] = None
    pid: Optional[int] = None
    copied: Optional[float] = None
    width: int = 100
    color: bool = False
    plain: bool = False

    @property
    def schema(self) -> str:
        """Name and version of the JSON, where the command itself does not say."""
        return schema_of(self.command)


def schema_of(command: str) -> str:
    """Return name and version of a command's JSON, "gdbext/blocks-leaks/2"."""
    return f"gdbext/{command.replace(' ', '-') or 'gdbext'}/{SCHEMA_VERSION}"


@dataclass(frozen=True)
class Trailer:
    """What ends an answer.

    :param status: ``gdbext.report.Status``.
    :param size: bytes of the answer.
    :param error: its ``kind``, ``message`` and ``hint``, where there is no answer.
    """

    status: int
    complete: bool
    findings: bool
    size: int
    error: Optional[Mapping[str, Any]] = None


def answer_path(folder: str) -> str:
    """Return the name of the answer's file. It is made when gdb begins with the question."""
    return os.path.join(folder, _ANSWER)


def open_answer(folder: str, question: Question) -> TextIO:
    """Open the answer's file to write it from its beginning, in characters that the user's locale has."""
    encoding = "ascii" if question.plain else "utf-8"
    return open(answer_path(folder), "w", encoding=encoding, errors="backslashreplace", opener=private)


def write_question(folder: str, question: Question) -> None:
    """Write the question."""
    _write(os.path.join(folder, _QUESTION), asdict(question))


def read_question(folder: str) -> Question:
    """Return the question."""
    with open(os.path.join(folder, _QUESTION), encoding="utf-8") as file:
        known = json.load(file)
    # Values of several words, or of options that were given again, are tuples; JSON knows lists alone.
    options = {name: _tuples(value) for name, value in known.pop("options").items()}
    return Question(options=options, words=tuple(known.pop("words")), **known)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def write_trailer(folder: str, trailer: Trailer) -> None:
    """End the answer, which was written and closed."""
    part = os.path.join(folder, _TRAILER + ".part")
    _write(part, asdict(trailer))
    os.replace(part, os.path.join(folder, _TRAILER))


def find_trailer(folder: str) -> Optional[Trailer]:
    """Return what ends the answer, or None when it is missing or the answer is not whole."""
    try:
        with open(os.path.join(folder, _TRAILER), encoding="utf-8") as file:
            trailer = Trailer(**json.load(file))
        return trailer if os.path.getsize(answer_path(folder)) == trailer.size else None
    except FileNotFoundError:
        return None


@dataclass(frozen=True)
class Copy:
    """What came of copying a process.

    :param held_seconds: for which it stood still.
    :param name: of the process, as the kernel has it.
    :param bytes: of the file that are no hole.
    :param missing: a line for each reason for which memory of the process is not in it.
    :param error: its ``kind``, ``message`` and ``hint``, where there is no copy.
    """

    held_seconds: float = 0.0
    name: str = ""
    bytes: int = 0
    missing: Sequence[str] = ()
    error: Optional[Mapping[str, Any]] = None


def write_copy(folder: str, copy: Copy) -> None:
    """Say what came of copying."""
    part = os.path.join(folder, _COPY + ".part")
    _write(part, asdict(copy))
    os.replace(part, os.path.join(folder, _COPY))


def find_copy(folder: str) -> Optional[Copy]:
    """Return what came of copying, or None: nothing was said."""
    try:
        with open(os.path.join(folder, _COPY), encoding="utf-8") as file:
            return Copy(**json.load(file))
    except FileNotFoundError:
        return None


def _write(path: str, value: Mapping[str, Any]) -> None:
    with open(path, "w", encoding="utf-8", opener=private) as file:
        json.dump(value, file)
