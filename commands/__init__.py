"""The whole surface on one screen: every command, and every setting, as data.

A row names the function that answers, ``"module:function"`` in this folder; the module is loaded when
the command first runs. The function is ``(context, arguments) -> Report``: see ``gdbext.bridge.context``
for what ``context`` offers. A new command is one file, one row and one test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Sequence

from gdbext.arguments import COMMON_OPTIONS, Option


@dataclass(frozen=True)
class CommandSpec:
    """One command.

    :param name: its words ("glibc arenas"); it is registered as ``gx NAME`` and, when nobody else
        owns the first word, plainly.
    :param run: ``"module:function"``.
    :param summary: one line for lists.
    :param description: what the columns and the marks mean; for ``-h``.
    :param options: besides the common ones.
    :param expression: what the raw text besides the options is, for the help ("ADDRESS", "[ARENA]"
        when it may be left out). None: there is none.
    :param words: the same, where the command takes several, each quoted when it holds spaces.
    :param example: one line that can be typed.
    :param prefixed_only: never register it plainly.
    :param raw: the whole line after ``-h`` is the expression; no common options.
    :param version: of the JSON schema.
    :param shown: rows of a table that text shows without ``--limit``; None is the usual number.
    """

    name: str
    run: str
    summary: str
    description: str = ""
    options: Sequence[Option] = ()
    expression: Optional[str] = None
    words: Optional[str] = None
    example: str = ""
    prefixed_only: bool = False
    raw: bool = False
    version: int = 1
    shown: Optional[int] = None

    @property
    def schema(self) -> str:
        """Name and version of the JSON, ``gdbext/glibc-arenas/1``."""
        return f"gdbext/{self.name.replace(' ', '-')}/{self.version}"

    @property
    def title(self) -> str:
        """The name that errors and help carry: with ``gx`` where there is no other."""
        return f"gx {self.name}" if self.prefixed_only else self.name

    @property
    def all_options(self) -> Sequence[Option]:
        """The command's own options, then the common ones."""
        if self.raw:
            return [option for option in COMMON_OPTIONS if option.name == "help"]
        return (*self.options, *COMMON_OPTIONS)

    @property
    def positional(self) -> str:
        """How ``gdbext.arguments.parse`` treats what is no option."""
        if self.raw:
            return "raw"
        if self.words is not None:
            return "words"
        return "none" if self.expression is None else "expression"


@dataclass(frozen=True)
class Setting:
    """One ``set gx NAME``.

    :param kind: ``size`` (bytes, K/M/G accepted), ``percent``, ``seconds``, ``flag`` (0 or 1, on/off).
    :param help: one line.
    """

    name: str
    default: int
    kind: str
    help: str


PREFIXES: Mapping[str, str] = {
    "glibc": "The ptmalloc heap of glibc, part by part.",
    "blocks": "The heap's blocks, whatever the allocator.",
}

COMMANDS: Sequence[CommandSpec] = (
    CommandSpec(
        "triage",
        run="triage:examine",
        summary="One page: where the memory is, and what is wrong, worst first",
        description="The findings, each with the bytes that it costs, the evidence for it and a remedy; the "
        "heaps; then the memory ledger (its 25 largest owners; `rss` has all). A healthy target has no "
        "findings; small ones stay silent, see `show gx`. From the shell the exit status is 1 when there are "
        "findings.\n\nINCOMPLETE on top means that memory was missing or that the command was stopped: silence "
        "about the rest then proves nothing.",
        example="triage --json=/tmp/triage.json",
        shown=25,
    ),
    CommandSpec(
        "rss",
        run="rss:account",
        summary="The memory ledger: every byte of the process attributed to one owner",
        description="Bytes are of address space: each mapping, and inside heaps each chunk, is attributed once. "
        "`residual` is what the owners do not add up to, and is 0 unless something overlaps. On a live process "
        "`resident` says how much of it is in RAM now, with the kernel's own count beside the sum; a core does "
        "not know. `not in core` is what the target had mapped and the core lacks.",
        example="rss --bytes",
    ),
    CommandSpec(
        "glibc arenas",
        run="glibc:arenas",
        summary="Every malloc arena: what it took from the system, and what became of it",
        description="`system` is what the arena took from the system; `in use`, `tcached`, `in bins` and `top` "
        "are usable bytes, without headers; `used` is in use as share of system; `attached` is the arena's own "
        "count of threads. `trimmable` is what malloc_trim(0) would return now. An arena whose mutex is held is "
        "`in flux`: a thread was inside malloc, its figures may be half-way. A thread arena with no thread "
        "attached any more is `stranded`. The sums on top are over all arenas, whatever --limit says.",
        example="glibc arenas --bytes",
    ),
    CommandSpec(
        "glibc heaps",
        run="glibc:heaps",
        summary="The stretches of memory that each arena consists of",
        description="`brk` and `mmap` belong to the main arena, a `heap` to a thread arena. `bytes` is the "
        "stretch, `in use` and `top` are usable bytes in it. Slack is memory behind a heap's end that stays "
        "writable after it shrank. `skipped` is what was damaged or not in the core.",
        example="glibc heaps --limit 10",
    ),
    CommandSpec(
        "glibc chunks",
        run="glibc:chunks",
        summary="Every chunk with its state, in address order",
        description="States: in-use, mmapped, tcache (whose, in column `of`), fastbin, unsorted, small, large, "
        "top, free (on no list), fencepost; --state also takes the groups used, cached and free, the last of "
        "which is all of fastbin, unsorted, small, large, top and free.\n\nSizes are chunk sizes in bytes, "
        "headers included; `pointer` is what the program holds. ARENA is an address or an expression, START-END "
        "two numbers that bound chunk addresses. 100 rows are shown, --limit 0 shows all; the sums on top are "
        "over all that match.",
        options=(
            Option("state", "text", "only these states, comma-separated", metavar="STATES"),
            Option("min-size", "size", "only chunks of at least SIZE", metavar="SIZE"),
            Option("max-size", "size", "only chunks of at most SIZE", metavar="SIZE"),
        ),
        expression="[ARENA|START-END]",
        example="glibc chunks --state large,unsorted --min-size 64K --limit 20",
    ),
    CommandSpec(
        "glibc bins",
        run="glibc:bins",
        summary="Every free list: count, bytes, and whether it is whole",
        description="A list is whole when fd and bk agree all the way round, sizes belong in it and it closes "
        "without a cycle. Empty lists are left out. `bin` is malloc's own index (1 is the unsorted bin); bytes, "
        "`smallest` and `largest` are usable bytes. ARENA is an address or an expression.",
        expression="[ARENA]",
        example="glibc bins &main_arena",
    ),
    CommandSpec(
        "glibc tcache",
        run="glibc:tcache",
        summary="What every thread's cache holds, by size class",
        description="The program has freed a cached chunk, but its header still says in use: it does not merge "
        "and is not trimmed. `counted` is the cache's own count, `chunks` what its list holds; `chunk "
        "size` has the header in it, `bytes` are usable bytes. `found by` is how it was found: by libc's TLS "
        "symbol, by the place in each thread's TLS that points to such caches (thread pointer), or by its "
        "contents alone (lists): then nobody's.",
        options=(Option("thread", "int", "only the cache of gdb's thread N", metavar="N"),),
        example="glibc tcache --thread 3",
    ),
    CommandSpec(
        "glibc mmapped",
        run="glibc:mmapped",
        summary="Chunks with a mapping of their own, against what malloc counts",
        description="Requests above malloc's mmap_threshold. `mapped` is the whole mapping, `usable` what the "
        "program may use of it, both in bytes. What was found stands against mp_.n_mmaps and mp_.mmapped_mem; "
        "since glibc 2.43 the latter grows by a header too much at each mremap.",
        example="glibc mmapped",
    ),
    CommandSpec(
        "glibc check",
        run="glibc:check",
        summary="Check every invariant of the heap, and list what is damaged",
        description="Sizes, flags, free lists, thread caches, tops, heaps, the ring of arenas. Each violation "
        "stands with its address, what was read, what was expected, the chunk before it and where the walk went "
        "on. What an arena that is in flux, or a core that lacks memory, explains is listed under Problems, but "
        "is no damage. `bytes skipped` could not be attributed. From the shell the exit status is 1 when there "
        "is any damage.",
        example="glibc check",
    ),
    CommandSpec(
        "glibc trim",
        run="glibc:trim",
        summary="What malloc_trim(0) would return, and what pins the rest",
        description="Per arena the bytes of whole pages inside free chunks, and of the main arena's top (tops "
        "of thread arenas stay, and so do thread caches); per heap the highest live block, which keeps its top "
        "from shrinking, with what its first bytes look like; then the free runs of a page and more under live "
        "blocks, largest first. A tcached block pins as a live one does.",
        example="glibc trim --limit 10",
    ),
    CommandSpec(
        "blocks summary",
        run="blocks:summarise",
        summary="All blocks of all allocators: used, cached, free, by arena and by size",
        description="Used, tcached and free partition all blocks: used includes mmapped blocks and excludes "
        "tcached ones, free includes fastbins and top. All sizes are usable bytes. The sizes with most bytes "
        "come first; `cumulative` is the share of a row and all above it.",
        example="blocks summary --limit 10",
    ),
    CommandSpec(
        "blocks list",
        run="blocks:list_blocks",
        summary="The blocks that pass a filter, in address order",
        description="STATES are in-use, mmapped, tcache, fastbin, unsorted, small, large, top, free (on no "
        "list), fencepost, or the groups used, cached and free. SIZE is in usable bytes, K, M and G are "
        "understood; START-END bounds the pointers that the program holds. 100 rows are shown, --limit 0 shows "
        "all; the sums on top are over all that match.",
        options=(
            Option("state", "text", "only these states, comma-separated", metavar="STATES"),
            Option("min-size", "size", "only blocks of at least SIZE", metavar="SIZE"),
            Option("max-size", "size", "only blocks of at most SIZE", metavar="SIZE"),
            Option("arena", "text", "only blocks of this arena", metavar="ADDRESS"),
        ),
        expression="[START-END]",
        example="blocks list --state in-use --min-size 1M",
    ),
    CommandSpec(
        "blocks at",
        run="blocks:describe",
        summary="What is at an address: block, arena, neighbours, mapping",
        description="ADDRESS is any expression of gdb; it need not be the start of a block. Sizes are usable "
        "bytes. `contents` is a hint at a block's first bytes: text, where its words point to, zeros, or "
        "hexadecimal.",
        expression="ADDRESS",
        example="blocks at $rdi",
    ),
    CommandSpec(
        "commands",
        run="gx:list_commands",
        summary="List the commands of gdbext, and which of their names are taken by others",
        description="Every command answers as `gx NAME`; as plain `NAME` unless somebody else owns its "
        "first word. Versions and the kernels in use stand below the table.",
        example="gx commands",
        prefixed_only=True,
    ),
    CommandSpec(
        "safe",
        run="gx:run_safely",
        summary="Run a command and record its error instead of raising it",
        description="For command lists of breakpoints, which gdb ends at the first error. The error is "
        "printed and kept in $gx_error, which is void after a success: test it with $_isvoid($gx_error).",
        expression="COMMAND",
        example="gx safe glibc check",
        prefixed_only=True,
        raw=True,
    ),
)

SETTINGS: Sequence[Setting] = (
    Setting("min-finding-bytes", 16 << 20, "size", "Findings of fewer bytes and a lesser share stay silent"),
    Setting("min-finding-share", 20, "percent", "Share of the writable memory that makes a finding"),
    Setting("min-finding-floor", 4 << 20, "size", "Findings of fewer bytes always stay silent"),
    Setting("safe", 0, "flag", "Whether commands of gdbext record their errors instead of raising them"),
    Setting("time-budget", 0, "seconds", "Seconds after which a command stops with what it has; 0 is never"),
)

# Names of ours that another pack owns: never registered plainly, whether or not it is loaded. Held
# against the pinned lists in tests/gdb/data.
FOREIGN_NAMES: Mapping[str, str] = {"heap": "pwndbg and GEF", "jemalloc": "pwndbg", "slab": "pwndbg"}


def find_command(name: str) -> Optional[CommandSpec]:
    """Return the row of that name, or None."""
    return next((spec for spec in COMMANDS if spec.name == name), None)
