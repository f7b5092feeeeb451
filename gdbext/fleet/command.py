"""``gdbext fleet``: the program's commands about many cores."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import tempfile
import time
from functools import partial
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple

import gdbext
from gdbext import _mount
from gdbext.cli.options import Options
from gdbext.cli.streams import put, tell
from gdbext.errors import UsageError
from gdbext.files import replacing
from gdbext.fleet.stores.objects import is_url, load
from gdbext.report import Status
from gdbext.starting import dependencies
from gdbext.starting.lockedfolder import LockedFolder
from gdbext.wording import count_text, printable, size_text, unicode_text

if TYPE_CHECKING:  # numpy comes with it, once it is known where that is
    from gdbext.fleet.run import Summary

_SHARE = 0.8  # of what memory is free
_DISK_SHARE = 0.9  # of what disk is free
_FILE = "file://"
_MIB = 1 << 20
_LEAST = 640 * _MIB
_TOP = 20
_LISTED = 200
_RESERVED = 256 * _MIB  # for the run itself, and for what writes
_FAILED_SINCE = "SELECT count(*) FROM cores WHERE time >= ? AND status = 2"


def run(options: Options) -> int:
    """Examine cores, and put their rows into a dataset; return the exit status: 0 once each has its rows.

    :raises GdbextError: there is nothing to examine, or the dataset cannot be written.
    """
    _prepare()
    from gdbext.fleet.examine import How
    from gdbext.fleet.pool import Limits
    from gdbext.fleet.progress import Progress
    from gdbext.fleet.run import Run, Wishes
    from gdbext.fleet.sources import find_sources

    given = options.arguments
    if not given.words or given.value("output") is None:
        raise UsageError("no cores are named" if not given.words else "no dataset is named", "SOURCE… -o DIR")
    folder = _load_store(given.value("output"))
    made = LockedFolder() if options.debug_dir is not None else None  # until we end
    debug_dir = _find_debug_dir(options, made.path) if made is not None else None
    where = (options.sysroot, _find_cache(options), debug_dir, _find_server(options))
    how = How(_commands(given.value("commands")), _find_gdb(options), *where)
    sources = find_sources(given.words, _listed() if "-" in given.words else (), given.value("host"))
    wishes = Wishes(given.flag("discard"), given.flag("retry"), given.value("scheduler") or "")
    if wishes.discard and any(is_url(source.path) for source in sources):
        raise UsageError("--discard removes files, no objects of a store", "the store's lifecycle rules remove those")
    limits = Limits(_jobs(given.value("jobs")), _memory(given.value("memory")), options.timeout, _disk())
    progress = Progress(len(sources))
    began = time.monotonic()
    try:
        summary = Run(folder, how, limits, progress, wishes).run(sources)
        _write_metrics(options, summary, time.monotonic() - began)
    except KeyboardInterrupt:
        progress.clear()
        tell("gdbext: fleet run: stopped; what was examined is kept, and running again goes on from there")
        return int(Status.FAILED)
    progress.clear()
    without = f", {summary.failed} of them without an answer" if summary.failed else ""
    before = f"; {summary.before} had rows before" if summary.before else ""
    put(f"{count_text(summary.examined, 'core')} examined in {time.monotonic() - began:.0f} s{without}{before}\n")
    return int(Status.CLEAN)


def _write_metrics(options: Options, summary: Summary, seconds: float) -> None:
    path = options.arguments.value("metrics")
    if path is None:
        return
    from gdbext.fleet import child
    from gdbext.fleet.metrics import metrics_text

    figures = {"examined_cores": summary.examined, "failed_cores": summary.failed, "seconds": round(seconds, 1)}
    text = child.run(
        partial(metrics_text, _load_store(options.arguments.value("output")), {**figures, "end": round(time.time())})
    )
    _write(path, text)


def _prepare() -> None:
    """Have ready what children need, before they are forked."""
    package = os.path.dirname(os.path.abspath(gdbext.__file__))
    _mount.mount(package)
    dependencies.locate(package)
    dependencies.load(*dependencies.NEEDED)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    from gdbext.fleet import preloading

    preloading.load()


def _commands(text: Optional[str]) -> Sequence[str]:
    from gdbext.fleet.kinds import COMMANDS

    if text is None:
        return COMMANDS
    asked = [" ".join(one.split()) for one in text.split(",")]
    unknown = [one for one in asked if one not in COMMANDS]
    if unknown:
        raise UsageError(f"--commands: {unknown[0]!r} makes no rows", f"there are {', '.join(COMMANDS)}")
    return [one for one in COMMANDS if one in asked or one == "triage"]


def _find_gdb(options: Options) -> Optional[str]:
    if options.arguments.flag("no-gdb"):
        return None
    if shutil.which(options.gdb) is not None:
        return options.gdb
    if options.gdb != Options.gdb:
        raise UsageError(f"there is no program {options.gdb}", "another gdb is named with --gdb")
    tell("gdbext: fleet run: there is no gdb: cores are examined without names and types")
    return None


def _find_cache(options: Options) -> Optional[str]:
    """Return the folder for what is read of files, which is there now; None: nothing is kept.

    :raises UsageError: it cannot be one.
    """
    from gdbext.filecache.store import Store, default_folder

    folder = None if options.arguments.flag("no-cache") else options.cache or default_folder()
    if folder is None:
        return None
    try:
        Store(folder).make()
    except UsageError:
        if options.cache:
            raise
        return None  # a home that is not ours to write to
    Store(folder).prune()
    return folder


def _find_debug_dir(options: Options, made: str) -> Optional[str]:
    """Return the folder of debug info, arranged by build-id, or None.

    :param made: a folder in which it is arranged where it is not.
    """
    if options.debug_dir is None:
        return None
    from gdbext.starting.debugfolder import with_index

    return with_index(options.debug_dir, os.path.join(made, "debug"))


def _find_server(options: Options) -> Optional[str]:
    """Return the server that is asked for files, once more for what it failed in; or None.

    :raises UsageError: there is no place for what comes.
    """
    if options.debuginfod is None:
        return None
    if options.arguments.flag("no-cache"):
        raise UsageError("--debuginfod and --no-cache exclude each other", "--cache names a place for what comes")
    from gdbext.starting.downloads import open_server

    return open_server(options.debuginfod, options.cache).url


def _listed() -> Sequence[str]:
    data = sys.stdin.buffer.read()
    return [os.fsdecode(line) for line in data.split(b"\0" if b"\0" in data else b"\n") if line]


def _load_store(folder: str) -> str:
    """Return what names a dataset, and have ready what reaches a store.

    :raises MissingDependencyError: it is not there.
    """
    folder = folder[len(_FILE) :] if folder.startswith(_FILE) else folder
    if is_url(folder):
        load(folder)
    return folder


def _disk() -> int:
    """Return the bytes that cores of object stores may take at once where temporary files are."""
    return int(shutil.disk_usage(tempfile.gettempdir()).free * _DISK_SHARE)


def _jobs(asked: Optional[int]) -> int:
    return asked or len(os.sched_getaffinity(0))


def _memory(asked: Optional[int]) -> int:
    """Return the bytes that all children may take together.

    :raises UsageError: it is not enough for one.
    """
    from gdbext.memory.room import find_room

    room = find_room()
    allowed = asked if asked is not None else int(room.bytes * _SHARE) if room is not None else 4 << 30
    if allowed < _RESERVED + _LEAST:
        raise UsageError(f"--memory: {size_text(allowed)} is too little", f"{size_text(_RESERVED + _LEAST)} at least")
    return allowed - _RESERVED


# ---- questions ----


def sql(options: Options) -> int:
    """Print what a query gives; return the exit status.

    :raises GdbextError: there is no dataset, or the query is wrong.
    """
    words = options.arguments.words
    if len(words) != 2:
        raise UsageError("a dataset and a query are needed", 'gdbext fleet sql DIR "select count(*) from cores"')
    dataset = _open(words[0])
    result = dataset.ask(words[1])
    return _show(options, result.columns, list(result.rows), Status.CLEAN)


def top(options: Options) -> int:
    """Print causes, those of most cores first; return the exit status; errors as :func:`sql`."""
    from gdbext.fleet.questions import TOP

    limit = options.arguments.value("limit")
    result = _open(_only(options)).ask(TOP, [limit or (1 << 62 if limit == 0 else _TOP)])
    return _show(options, result.columns, list(result.rows), Status.CLEAN)


def new(options: Options) -> int:
    """Print causes that were not seen before a time; return the exit status: 1 where there are any."""
    from gdbext.fleet.questions import NEW, parse_span

    since = time.time() - parse_span(options.arguments.value("since"))
    dataset = _open(_only(options))
    result = dataset.ask(NEW, [since])
    rows = list(result.rows)
    ((failed,),) = dataset.ask(_FAILED_SINCE, [since]).rows
    if failed:
        cores = count_text(failed, "core")
        tell(f"gdbext: fleet new: no answer of {cores} since then: what caused them is not known")
    status = Status.FINDINGS if rows else Status.PARTIAL if failed else Status.CLEAN
    return _show(options, result.columns, rows, status)


def report(options: Options) -> int:
    """Write a page about a dataset; return the exit status; errors as :func:`sql`."""
    from gdbext.fleet.questions import parse_span

    given = options.arguments
    folder, output = _only(options), given.value("output")
    if output is None:
        raise UsageError("no file is named", "gdbext fleet report DIR -o FILE.html")
    since = time.time() - parse_span(given.value("since"))
    dataset = _open(folder)
    dependencies.load(*dependencies.DRAWING)
    from gdbext.fleet.overview import make_document
    from gdbext.render.page.fleetpage import fleet_page

    document = make_document(dataset, folder, since, given.value("limit") or _LISTED)
    _write(output, fleet_page(document, given.flag("redact")))
    put(f"{output}: {count_text(document['data']['totals']['cores'], 'core')}, {size_text(os.path.getsize(output))}\n")
    return int(Status.CLEAN)


def _only(options: Options) -> str:
    words = options.arguments.words
    if len(words) != 1:
        raise UsageError("one dataset is named", f"gdbext {options.name} DIR")
    return words[0]


def _open(folder: str) -> Any:
    package = os.path.dirname(os.path.abspath(gdbext.__file__))
    dependencies.locate(package)
    from gdbext.fleet.asking import Dataset

    return Dataset(_load_store(folder))


def _show(options: Options, columns: Sequence[str], rows: List[Tuple[Any, ...]], status: Status) -> int:
    if options.json is None:
        put(_text(columns, rows))
        return int(status)
    data = {"columns": list(columns), "rows": [[_plain(value) for value in row] for row in rows]}
    document = {"schema": options.schema, "data": data, "status": int(status)}
    text = json.dumps(document, allow_nan=False) + "\n"
    if options.json:
        _write(options.json, text)
    else:
        put(text)
    return int(status)


def _write(path: str, text: str) -> None:
    try:
        with replacing(path) as stream:
            stream.write(text.encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def _text(columns: Sequence[str], rows: List[Tuple[Any, ...]]) -> str:
    dependencies.load("tabulate")
    from tabulate import tabulate

    if not rows:
        return "no rows\n"
    right = [all(row[at] is None or isinstance(row[at], (int, float)) for row in rows) for at in range(len(columns))]
    cells = [["?" if value is None else printable(str(value)) for value in row] for row in rows]
    align = ["right" if one else "left" for one in right]
    return (
        str(tabulate(cells, [printable(name) for name in columns], "simple", colalign=align, disable_numparse=True))
        + "\n"
    )


def _plain(value: Any) -> Any:
    """Return a value of DuckDB's as JSON has it."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    return unicode_text(str(value))
