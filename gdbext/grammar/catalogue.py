"""The whole surface on one screen: every command, and every setting, as data.

A row names the function that answers, ``"module:function"`` in ``commands/``; the module is loaded when
the command first runs. The function is ``(session, arguments) -> Report``: see ``gdbext.session``
for what it offers. A new command is one file, one row and one test.
"""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional, Sequence, Union

from gdbext.errors import UsageError
from gdbext.grammar.arguments import COMMON_OPTIONS, Arguments, Option
from gdbext.grammar.exchange import schema_of


class CommandSpec(NamedTuple):
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
    :param shown: rows of a table that text shows without ``--limit``; None is the usual number.
    :param names: what that text is, for completion: see ``gdbext.grammar.arguments.Option``.
    :param values: what the first of the words may be, for completion.
    :param missing: what is wrong without an expression, and what to write; where it may be left out, nothing.
    :param own: of the `gdbext` program alone, which has no common options; ``run`` is below ``gdbext``.
    :param target: ``needed``, ``optional`` (it says more where there is one) or ``none``.
    :param several: how many targets it takes at least, where words that follow it in a shell are targets, all for one
        answer; 0: one answer for each.
    :param debugger: what one adds to the answer: ``all``; ``names`` of the allocator's variables and structures, so
        nothing where no file of the core's is at hand; ``target``: nothing without a target.
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
    shown: Optional[int] = None
    names: str = "expression"
    values: Sequence[str] = ()
    missing: Sequence[str] = ()
    own: bool = False
    target: str = "needed"
    debugger: str = "all"
    several: int = 0

    @property
    def schema(self) -> str:
        """Name and version of the JSON, ``gdbext/glibc-arenas/2``."""
        return schema_of(self.name)

    @property
    def title(self) -> str:
        """The name that errors and help carry: with ``gx`` where there is no other."""
        if self.own:
            return f"gdbext {self.name}"
        return f"gx {self.name}" if self.prefixed_only else self.name

    @property
    def all_options(self) -> Sequence[Option]:
        """The command's own options, then the common ones."""
        if self.raw:
            return [option for option in COMMON_OPTIONS if option.name == "help"]
        if self.own:
            return self.options
        return (*self.options, *COMMON_OPTIONS)

    @property
    def positional(self) -> str:
        """How ``gdbext.grammar.arguments.parse`` treats what is no option."""
        if self.raw:
            return "raw"
        if self.words is not None:
            return "words"
        return "none" if self.expression is None else "expression"

    def check(self, arguments: Arguments) -> None:
        """Check that there is an expression where there must be one.

        :raises UsageError: when there is none.
        """
        if self.missing and not arguments.expression:
            raise UsageError(*self.missing)


class Setting(NamedTuple):
    """One ``set gx NAME``.

    :param kind: ``size`` (bytes, K/M/G accepted), ``percent``, ``seconds``, ``count``, ``flag`` (0 or 1, on/off),
        ``text``.
    :param help: one line.
    """

    name: str
    default: Union[int, str]
    kind: str
    help: str


# For completion; held against the engine's own names by tests.
BLOCK_STATES = (
    "in-use", "mmapped", "tcache", "fastbin", "unsorted", "small", "large", "top", "free", "fencepost", "dirty",
    "muzzy", "used", "cached",
)  # fmt: skip
EXTENT_STATES = ("active", "dirty", "muzzy", "retained", "transition", "merging", "cached", "unknown")
BLOCK_FIELDS = (
    "size", "address", "state", "reach", "arena", "thread", "allocator", "type", "confidence", "refs"
)  # fmt: skip
BLOCK_COLUMNS = (*BLOCK_FIELDS, "reached_by_offset")

# What the user may say about a list or table: see gdbext.structures.shapes.resolve.Overrides.
STRUCTURE_OPTIONS: Sequence[Option] = (
    Option("shape", "text", "take it for this shape; gx shapes list has them", metavar="NAME", names="shape"),
    Option("next", "text", "the link to the next node: member, path or offset", metavar="MEMBER"),
    Option("prev", "text", "the link back, for --check", metavar="MEMBER"),
    Option("head", "text", "where a bin, or the object, has its first link", metavar="MEMBER"),
    Option("container", "text", "the elements' type, and the member that is the node", metavar="TYPE MEMBER", words=2),
    Option("bins", "text", "EXPR is the first of N bins", metavar="N"),
    Option("stride", "text", "bytes from bin to bin", metavar="S"),
    Option("hash", "text", "the stored hash in a node", metavar="MEMBER"),
    Option("key", "text", "the key in a node", metavar="MEMBER"),
    Option("mask", "text", "bits to clear in each link", metavar="BITS"),
    Option("mangled", "flag", "links are XORed with their own address >> 12"),
    Option("end", "text", "how chains end: null, head, or a value", metavar="WORD", values=("null", "head")),
    Option("raw", "flag", "use no types: EXPR is an address, members are offsets"),
    Option("max", "int", "follow no chain beyond N nodes", metavar="N"),
)

_TYPES = Option("types", "flag", "find types of blocks in a heap of more than a million, too")
_COMPARED = (_TYPES, Option("memory-limit", "size", "say when memory reaches SIZE", metavar="SIZE"))
_CLEAR = Option("clear", "text", "clear these bits (tags) before a word is taken for a pointer", metavar="BITS")
_MANGLED = Option("mangled", "flag", "words XORed with their own address >> 12 count as pointers, too")

# A process may have several jemallocs, of several libraries.
_HEAP = Option("heap", "text", "only this one of several jemallocs, as reports call it", metavar="NAME")

# Of the `gdbext` program, besides those of its commands.
SHELL_OPTIONS: Sequence[Option] = (
    Option("core", "text", "the core to examine; also packed as .zst, .lz4, .xz or .gz; may be repeated",
           metavar="CORE", short="c", many=True, names="file"),
    Option("exe", "text", "its executable; otherwise the one that the core names, if that has the same build-id",
           metavar="EXE", names="file"),
    Option("pid", "text", "the process to examine; it goes on afterwards", metavar="PID", short="p", many=True,
           names="process"),
    Option("json", "file", "write JSON to standard output or to FILE", metavar="FILE"),
    Option("sysroot", "text", "where the libraries of the target's machine are", metavar="DIR", names="folder"),
    Option("debug-dir", "text", "where separate debug info is, instead of gdb's own place", metavar="DIR",
           names="folder"),
    Option("cache", "text", "keep what gdb reads of files in DIR, for later cores of the same files; fleet run does so "
           "anyway, in ~/.cache/gdbext", metavar="DIR", names="folder"),
    Option("debuginfod", "text", "ask this server for files and debug info of a core that are not here", metavar="URL"),
    Option("gdb", "text", "the gdb to use", metavar="PROGRAM", names="program"),
    Option("timeout", "text", "seconds after which it is ended (default 600; 0 is for ever)", metavar="S"),
    Option("color", "choice", "when to colour text; auto is on a terminal, unless NO_COLOR is set",
           ("auto", "always", "never"), metavar="WHEN"),
    Option("swapped", "flag", "also read what is swapped out of --pid, which brings it back into RAM"),
    Option("in-place", "flag", "examine the process of --pid itself and no copy of it: it stands still until that is "
           "done"),
    Option("max-pause", "text", "copy nothing more of --pid after S seconds; variables, stacks and small mappings come "
           "first", metavar="S"),
    Option("max-unpacked", "size", "how much a packed core may unpack to, besides zeros (default nine tenths of what "
           "is free in TMPDIR)", metavar="SIZE"),
    Option("max-memory", "size", "how much memory of its own a search of blocks may take (default nine tenths of what "
           "is free); beyond, it says what it needs and does not begin", metavar="SIZE"),
    Option("samples", "text", "lockwait with --pid: take N samples, and say what is stuck, what is slow, and what "
           "moves; the process goes on between", metavar="N"),
    Option("interval", "text", "seconds between two samples (default 1)", metavar="S"),
    Option("every", "duration", "compare and report with --pid: time between two samples, such as 30s or 5m",
           metavar="TIME"),
    Option("times", "text", "compare and report with --pid: take N samples; the process goes on between", metavar="N"),
    Option("help", "flag", "show this help", short="h"),
    Option("version", "flag", "show the version"),
)

PREFIXES: Mapping[str, str] = {
    "glibc": "The ptmalloc heap of glibc, part by part.",
    "jemalloc": "The jemalloc heap, part by part.",
    "python": "CPython's objects and allocator, part by part.",
    "blocks": "The heap's blocks, whatever the allocator.",
    "shapes": "How lists, tables and trees of known programs are laid out.",
}

# With those that the program alone has.
SHELL_PREFIXES: Mapping[str, str] = {**PREFIXES, "fleet": "Many cores: rows of all in a dataset, and questions."}

COMMANDS: Sequence[CommandSpec] = (
    CommandSpec(
        "triage",
        run="triage:examine",
        summary="One page: where the memory is, and what is wrong, worst first",
        description="The verdict; why the process died, of a core; the findings, each with the bytes that it costs, "
        "the evidence for it and a remedy; memory by owner (`rss` has every owner by itself); the commands that lead "
        "on. Shares are of what costs memory: resident pages of a process, bytes in a core. A healthy target has no "
        "findings; small ones stay silent, see `show gx`. From the shell the exit status is 1 when there are "
        "findings.\n\n`not complete` on top means that something was not examined: memory is missing, a search reached "
        "its limit or was stopped, or much belongs to an allocator that gdbext does not know. The verdict names it, "
        "the problems say why and what goes on; silence about it proves nothing.",
        options=(Option("leaks", "flag", "search for leaks without a limit, and judge where roots are missing, too"),),
        example="triage --json=/tmp/triage.json",
        shown=25,
    ),
    CommandSpec(
        "rss",
        run="rss:account",
        debugger="names",
        summary="The memory ledger: every byte of the process attributed to one owner",
        description="Each mapping, and inside heaps each chunk, is attributed once. On a live process `resident` says "
        "how much of it is in RAM now, with the kernel's own count beside the sum; of a core, which does not know, `in "
        "core` is what its file holds besides holes. Shares are of these; `mapped` is address space, `not in "
        "core` what the target had mapped and is missing from the core. `residual` is what the owners do not add up "
        "to, and is 0 unless something overlaps.",
        example="rss --bytes",
    ),
    CommandSpec(
        "report",
        run="report:examine",
        summary="One page with pictures: findings, growth, memory, maps of the heap, what is kept and leaked, locks",
        description="FILE becomes one page of HTML that needs no network and no server, at most 3 MB: attach it to a "
        "ticket. It holds what triage, blocks summary, blocks retained, blocks leaks, lockwait and slabskew answer, "
        "drawn: memory by owner, the address space to scale, the heap page by page, sizes, arenas, types from their "
        "roots, hash tables, waits. Its figures are those of --json, which stands in it and can be saved from it.\n\n"
        "Of several cores or snapshots of one program, a recording, or moments of a process it holds what compare "
        "answers, too: what grows comes first, lines show memory by owner over time; all else is of the last core. "
        "OLD, --types and --memory-limit are as of compare.\n\n"
        "Names and texts of the target stand in it as text. --redact leaves out every text that may come from the "
        "target: names of types, files, functions, threads are numbered instead. Contents of memory are shown only "
        "with --with-contents, but for what findings quote. A status of 1 or 3 is as of triage, or of compare.",
        options=(
            Option("output", "text", "write the page", metavar="FILE", short="o", names="file"),
            Option("redact", "flag", "show no text of the target's, in the page"),
            Option("with-contents", "flag", "show what leaked blocks look like inside, in the page"),
            *_COMPARED,
        ),
        words="[OLD…]",
        names="file",
        example="gdbext report core.2914 -o core.2914.html",
        prefixed_only=True,
        target="optional",
        debugger="target",
        several=1,
    ),
    CommandSpec(
        "heapmap",
        run="heapmap:show",
        debugger="names",
        summary="The heap page by page: used, cached, free, returned, never touched",
        description="Each character is a cell, of so many bytes as the first figure says; with colour each half of a "
        "character is one. Stretches follow each other, gaps between them are cut. A page is used where a block in use "
        "lies in it; free and cached ones hold nothing in use; returned ones are free, and their memory went back to "
        "the system; untouched ones were never written to. A cell is what most of its pages are, or `used and free` "
        "where it is a quarter of each at least. ARENA is an address or an expression; of START-END all that is mapped "
        "there is drawn, heap or not.",
        options=(
            Option("svg", "text", "also write it as a picture", metavar="FILE", names="file"),
        ),
        expression="[ARENA|START-END]",
        names="arena",
        example="heapmap &main_arena",
    ),
    CommandSpec(
        "glibc arenas",
        run="glibc:arenas",
        debugger="names",
        summary="Every malloc arena: what it took from the system, and what became of it",
        description="`system` is what the arena took from the system; `in use`, `tcached`, `in bins` and `top` "
        "are usable bytes, without headers; `used` is in use as share of system; `attached` is the arena's own "
        "count of threads. `trimmable` is what malloc_trim(0) would return now. An arena whose mutex is held is "
        "`in flux`: a thread was inside malloc, its figures may be half-way; so are all when the only thread was, "
        "which locks none. A thread arena with no thread attached any more is `stranded`. The sums on top are over all "
        "arenas, whatever --limit says.",
        example="glibc arenas --bytes",
    ),
    CommandSpec(
        "glibc heaps",
        run="glibc:heaps",
        debugger="names",
        summary="The stretches of memory that each arena consists of",
        description="`brk` and `mmap` belong to the main arena, a `heap` to a thread arena. `bytes` is the "
        "stretch, `in use` and `top` are usable bytes in it. Slack is memory behind a heap's end that stays "
        "writable after it shrank. `skipped` is what was damaged or not in the core.",
        example="glibc heaps --limit 10",
    ),
    CommandSpec(
        "glibc chunks",
        run="glibc:chunks",
        debugger="names",
        summary="Every chunk with its state, in address order",
        description="States: in-use, mmapped, tcache (whose, in column `of`), fastbin, unsorted, small, large, "
        "top, free (on no list), fencepost; --state also takes the groups used, cached and free, the last of "
        "which is all of fastbin, unsorted, small, large, top and free.\n\nSizes are chunk sizes in bytes, "
        "headers included; `pointer` is what the program holds. ARENA is an address or an expression, START-END "
        "two numbers that bound chunk addresses. 100 rows are shown, --limit 0 shows all; the sums on top are "
        "over all that match.",
        options=(
            Option("state", "text", "only these states, comma-separated", metavar="STATES",
                   values=BLOCK_STATES),
            Option("min-size", "size", "only chunks of at least SIZE", metavar="SIZE"),
            Option("max-size", "size", "only chunks of at most SIZE", metavar="SIZE"),
        ),
        expression="[ARENA|START-END]",
        names="arena",
        example="glibc chunks --state large,unsorted --min-size 64K --limit 20",
    ),
    CommandSpec(
        "glibc bins",
        run="glibc:bins",
        debugger="names",
        summary="Every free list: count, bytes, and whether it is whole",
        description="A list is whole when fd and bk agree all the way round, sizes belong in it and it closes "
        "without a cycle. Empty lists are left out. `bin` is malloc's own index (1 is the unsorted bin); bytes, "
        "`smallest` and `largest` are usable bytes. ARENA is an address or an expression.",
        expression="[ARENA]",
        names="arena",
        example="glibc bins &main_arena",
    ),
    CommandSpec(
        "glibc tcache",
        run="glibc:tcache",
        debugger="names",
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
        debugger="names",
        summary="Chunks with a mapping of their own, against what malloc counts",
        description="Requests above malloc's mmap_threshold. `mapped` is the whole mapping, `usable` what the "
        "program may use of it, both in bytes. What was found stands against mp_.n_mmaps and mp_.mmapped_mem; "
        "since glibc 2.43 the latter grows by a header too much at each mremap.",
        example="glibc mmapped",
    ),
    CommandSpec(
        "glibc check",
        run="glibc:check",
        debugger="names",
        summary="Check every invariant of the heap, and list what is damaged",
        description="Sizes, flags, free lists, thread caches, tops, heaps, the ring of arenas. Each violation "
        "stands with its address, what was read, what was expected, the chunk before it and where the walk went "
        "on. What an arena that is in flux, or memory missing from the core, explains is listed under Problems, but "
        "is no damage. `bytes skipped` could not be attributed. From the shell the exit status is 1 when there "
        "is any damage.",
        example="glibc check",
    ),
    CommandSpec(
        "glibc trim",
        run="glibc:trim",
        debugger="names",
        summary="What malloc_trim(0) would return, and what pins the rest",
        description="Per arena the bytes of whole pages inside free chunks, and of the main arena's top (tops "
        "of thread arenas stay, and so do thread caches); per heap the highest live block, which keeps its top "
        "from shrinking, with what its first bytes look like; then the free runs of a page and more under live "
        "blocks, largest first. A tcached block pins as a live one does.",
        example="glibc trim --limit 10",
    ),
    CommandSpec(
        "jemalloc arenas",
        run="jemalloc:arenas",
        debugger="names",
        summary="Every jemalloc arena: what is allocated, and what became of its pages",
        description="`allocated` is what the program was handed out, `small` and `large` of it, those in thread "
        "caches too: jemalloc's own figures. `active` is pages in use, `fragmented` active less allocated. `dirty` "
        "pages are unused and still in RAM, `muzzy` ones the kernel may take, `retained` ones are address space "
        "alone. `mapped` and `resident` are jemalloc's estimates. `tcached` is in the caches that the arena fills. "
        "`attached` is its own count of threads. A manual arena was made by mallctl; ? is not known.",
        options=(_HEAP,),
        example="gx jemalloc arenas --bytes",
        prefixed_only=True,
    ),
    CommandSpec(
        "jemalloc bins",
        run="jemalloc:bins",
        debugger="names",
        summary="How well the slabs of each small size class are used",
        description="A slab is pages cut into regions of one size. `current` slabs are allocated from now, `nonfull` "
        "have free regions, `full` none. `used` regions are in use or `cached` in a thread cache; `in use` is used as "
        "share of all, `empty` the bytes of regions that are free, which only the same class can use. ARENA is an "
        "index, an address or an expression; without it the figures are sums over arenas.",
        options=(_HEAP,),
        expression="[ARENA]",
        names="arena",
        example="gx jemalloc bins 0",
        prefixed_only=True,
    ),
    CommandSpec(
        "jemalloc extents",
        run="jemalloc:extents",
        debugger="names",
        summary="Every extent with its state, in address order",
        description="Extents are what the radix tree knows, so none is missing and none is counted twice. States: "
        "active, dirty, muzzy, retained; since 5.3 transition, merging and cached (kept by the huge page allocator); "
        "unknown is damage. A large block mostly has a page more than it needs. 100 rows are shown, --limit 0 shows "
        "all; the sums on top are over all that match.",
        options=(
            Option("state", "text", "only these states, comma-separated", metavar="STATES",
                   values=EXTENT_STATES),
            Option("arena", "int", "only extents of arena N", metavar="N"),
            _HEAP,
        ),
        example="gx jemalloc extents --state dirty,muzzy --arena 0",
        prefixed_only=True,
    ),
    CommandSpec(
        "jemalloc large",
        run="jemalloc:large",
        debugger="names",
        summary="Large allocations by size class, and the largest of them",
        description="Large blocks have extents of their own. `blocks` and `bytes` (that the program may use) are what "
        "the radix tree has, `extents` the bytes of their pages, `cached` are in thread caches, `counted` is what the "
        "arenas count. 100 blocks are shown, --limit 0 shows all.",
        options=(_HEAP,),
        example="gx jemalloc large --limit 20",
        prefixed_only=True,
    ),
    CommandSpec(
        "jemalloc tcache",
        run="jemalloc:tcache",
        debugger="names",
        summary="What every thread's cache holds, by size class",
        description="The program has freed a cached object; jemalloc still counts it as allocated. `arena` is the one "
        "that fills the cache, `at most` how many objects the class may hold, `low water` the fewest since the last "
        "collection. A cache without a thread was made by mallctl, or its thread is gone.",
        options=(Option("thread", "int", "only the cache of gdb's thread N", metavar="N"), _HEAP),
        example="gx jemalloc tcache --thread 3",
        prefixed_only=True,
    ),
    CommandSpec(
        "jemalloc decay",
        run="jemalloc:decay",
        debugger="names",
        summary="How unused pages go back to the system, and which threads can make them",
        description="Per arena, for dirty and for muzzy pages: the decay time (-1 is never, 0 at once), pages now, "
        "`allowed` by the decay curve at this moment, `age` of the last of the curve's 200 steps, whether it ever "
        "`advanced` by one, sweeps, calls of madvise, pages purged.\n\nPages decay when a thread's ticker fires: "
        "`can fire` says whether it ever can, `why` why not; `background` whether jemalloc's own threads do it. A "
        "core has no clock: now is the newest time found in memory, ? when there is none, and not `exact`. From the "
        "shell the exit status is 1 when there are findings.",
        options=(_HEAP,),
        example="gx jemalloc decay",
        prefixed_only=True,
    ),
    CommandSpec(
        "jemalloc check",
        run="jemalloc:check",
        debugger="names",
        summary="Hold every counter of the heap to what was walked, and list what is damaged",
        description="Pages, slabs and regions counted against the extents and their bitmaps, heaps and lists of "
        "extents, objects in thread caches, each at most once. Each mismatch stands with both numbers. What a thread "
        "in the middle of an operation or absent memory explains is listed under Problems, but is no damage. From "
        "the shell the exit status is 1 when there is any damage.",
        options=(_HEAP,),
        example="gx jemalloc check",
        prefixed_only=True,
    ),
    CommandSpec(
        "python types",
        run="python:types",
        debugger="names",
        summary="CPython's objects by type, with what they own",
        description="Every live object in a block of any heap, by the type object that it points to: `module.Class`, "
        "of builtins without the module. `owned` is what an object has for itself beside its own block: items of "
        "lists, tables of dicts and sets, values of instances, an instance's dict that nothing else refers to. Each "
        "block counts once. `freed and kept` are objects that the interpreter keeps for the next of their type. Builds "
        "without the global lock are not read.",
        example="gx python types --limit 20",
        prefixed_only=True,
    ),
    CommandSpec(
        "python blocks",
        run="python:blocks",
        debugger="names",
        summary="How CPython's pools and arenas are used, by size class and arena",
        description="CPython takes arenas from the system, cuts them into pools, and each pool into blocks of one size "
        "up to 512 bytes. An arena goes back when all its pools are free: those with the fewest bytes in use come "
        "first. `free` blocks can only be used by objects of the same size. Larger objects are malloc's.",
        example="gx python blocks",
        prefixed_only=True,
    ),
    CommandSpec(
        "python garbage",
        run="python:garbage",
        debugger="names",
        summary="CPython's objects that only its collector still knows, by type",
        description="Containers that are unreachable from interpreters, modules, stacks and native memory when links "
        "of the collector's own lists and weak references do not count: cycles that the next full collection frees, "
        "and that stay while it is switched off (`gc.disable()`, `gc.freeze()`) or far away. Any word that may be a "
        "pointer keeps an object, so some may be missing here.",
        example="gx python garbage",
        prefixed_only=True,
    ),
    CommandSpec(
        "blocks summary",
        run="summary:summarise",
        debugger="names",
        summary="All blocks of all allocators: used, cached, free, by arena and by size",
        description="Used, tcached and free partition all blocks: used includes mmapped blocks and excludes "
        "tcached ones, free includes fastbins and top. All sizes are usable bytes, in powers of two: `sizes "
        "from` 64 are 64 to 127 bytes; --exact has each size, with `cumulative`, the share of a row and all above it.",
        options=(Option("exact", "flag", "each size by itself, not powers of two"),),
        example="blocks summary --limit 10",
    ),
    CommandSpec(
        "blocks list",
        run="blocks:list_blocks",
        summary="The blocks that pass a filter or a query",
        description="STATES are in-use, mmapped, tcache, fastbin, unsorted, small, large, top, free (on no "
        "list), fencepost, or the groups used, cached and free. SIZE is in usable bytes, K, M and G are "
        "understood; START-END bounds the pointers that the program holds. 100 rows are shown, --limit 0 shows "
        "all; the sums on top are over all that match.\n\nQUERY joins comparisons by and, or, not and brackets. "
        "Fields: size, address, state, reach, arena, thread, allocator, type, confidence, refs. Comparisons: == != < "
        "<= > >=, chains (4K <= size < 1M), `field in (a, b)`, and ~ and !~, which search for a regular expression. "
        "`state` is any of STATES, or reached, possibly-leaked or leaked; `arena` an address, an index or none; "
        "`thread` the number or name of a thread that is attached to the arena; `refs` the number of other blocks in "
        "use, and of words in roots, that point at a block. Blocks that are not in use have no reach, type or refs: "
        "these are unknown, and what is unknown matches no comparison and no negation of one. Reachability, types and "
        "references are worked out only where they are asked for.",
        options=(
            Option("where", "text", "only blocks for which this is true", metavar="QUERY"),
            Option("state", "text", "only these states, comma-separated", metavar="STATES",
                   values=BLOCK_STATES),
            Option("min-size", "size", "only blocks of at least SIZE", metavar="SIZE"),
            Option("max-size", "size", "only blocks of at most SIZE", metavar="SIZE"),
            Option("arena", "text", "only blocks of this arena", metavar="ADDRESS", names="arena"),
            Option("sort", "text", "order by these fields, comma-separated; -FIELD descends", metavar="FIELDS",
                   values=BLOCK_FIELDS),
            Option("columns", "text", "show these fields, comma-separated", metavar="FIELDS", values=BLOCK_COLUMNS),
            Option("count", "flag", "only count them"),
            _CLEAR,
            _MANGLED,
        ),
        expression="[START-END]",
        names="",
        example="blocks list --state in-use --min-size 1M\n"
        "blocks list --where 'state == leaked and size >= 4K' --sort -size",
    ),
    CommandSpec(
        "blocks at",
        run="blocks:describe",
        summary="What is at an address: block, type, who points there, neighbours, its words",
        description="ADDRESS is any expression of gdb; it need not be the start of a block. Sizes are usable "
        "bytes. `contents` is a hint at a block's first bytes: text, where its words point to, zeros, or "
        "hexadecimal. `reach` is reached, possibly leaked or leaked; `type` what the block is, with how sure that is; "
        "pointers are words of other blocks in use and of roots, the first of which are named (blocks refs has all)."
        "\n\nUnder `Words` each word says what it looks like: a pointer with what it points at, text, a number; equal "
        "ones share a row, * marks the one that holds ADDRESS. In freed blocks mangled links of free lists are decoded."
        " Beyond a million blocks --reach is needed for types, and in a process for reachability and pointers.",
        options=(
            Option("words", "int", "dump N words (default 32); 0 dumps the whole block", metavar="N"),
            Option("reach", "flag", "work out reachability and types however large the heap is"),
            _CLEAR,
            _MANGLED,
        ),
        expression="ADDRESS",
        example="blocks at $rdi",
        missing=("an address is missing", "blocks at ADDRESS"),
    ),
    CommandSpec(
        "blocks leaks",
        run="leaks:find",
        summary="What leaked: blocks in use that are unreachable from any root",
        description="Roots are registers, stacks from the stack pointer up, thread-local storage, writable data of "
        "modules and all other writable memory outside of heaps. `reached`: start pointers lead there from a "
        "root. `possibly leaked`: every path needs an interior pointer, as a container, a base class or a tag has it; "
        "or chance. `leaked`: unreachable. Where nearly all interior pointers lead equally far into their blocks, "
        "behind a header of the program's own, they count as start pointers: see `headers`. A `leak root` is a leaked "
        "block that no leaked block points at, or the lowest of a cycle that nothing else points at; it `keeps` itself "
        "and what only it leads to, so mend leak roots first. All other leaked blocks are `indirect`.\n\n"
        "False leaks: what `Missing` lists could not be examined, so blocks that only it points at look leaked. "
        "Pointers that are hidden (tags in high bits: --clear; links mangled as malloc has them: --mangled; otherwise "
        "XORed, compressed), or in another process, are not seen either. A word that looks like a pointer and is none "
        "can hide a leak, never make one. 10 rows of each table are shown. From the shell the exit status is 1 when "
        "anything leaked, and 3 when that is inconclusive.",
        options=(
            Option("list", "flag", "list every leaked block, and every leak root, in text and JSON"),
            Option("possible", "flag", "list the possibly leaked blocks too, in text and JSON"),
            Option("flame", "text", "also write leaked bytes by types, in folded form for flame graphs", metavar="FILE",
                   names="file"),
            _CLEAR,
            _MANGLED,
        ),
        example="blocks leaks --list --limit 0",
        shown=10,
    ),
    CommandSpec(
        "blocks refs",
        run="refs:find_pointers",
        summary="Who points at a block or an address, and who at those",
        description="Every start pointer to the block that ADDRESS is in, --interior: every pointer anywhere into it, "
        "in registers, stacks, variables and live blocks: `word` is where the pointer lies, `into` how far behind the "
        "start it points. An address in no block is searched for as it is. Pointers in freed memory keep nothing "
        "alive and are listed apart. Of a block that is not in use the pointers dangle. --depth N goes on upwards, "
        "with a dot for each level; a block is followed once.",
        options=(
            Option("interior", "flag", "interior pointers, too"),
            Option("depth", "int", "follow N levels of pointers upwards (default 1); 0 for all, 64 at most",
                   default=1, metavar="N"),
            _TYPES,
            _CLEAR,
            _MANGLED,
        ),
        expression="ADDRESS",
        example="blocks refs $rdi --depth 3",
        missing=("an address is missing", "blocks refs ADDRESS"),
    ),
    CommandSpec(
        "blocks path",
        run="refs:find_path",
        summary="What keeps a block alive: a shortest chain of pointers from a root",
        description="Each row is a pointer: the place that it lies in, and the block that it points at. A path of "
        "start pointers is preferred to any that needs an interior pointer, even a shorter one, and a path from a "
        "variable or a mapping to one from a stack or register, where stale words are left. Of a leaked block the "
        "chain begins at the leaked block that keeps it. --roots N shows chains from N blocks that roots of any kind "
        "point at, shortest first, 0 from all.",
        options=(
            Option("roots", "int", "chains from so many different roots; 0 for all", default=1, metavar="N"),
            Option("dot", "text", "also write the chains as a graph; drawn where FILE ends in .svg", metavar="FILE",
                   names="file"),
            _TYPES,
            _CLEAR,
            _MANGLED,
        ),
        expression="ADDRESS",
        example="blocks path session",
        missing=("an address is missing", "blocks path ADDRESS"),
    ),
    CommandSpec(
        "blocks retained",
        run="retained:find",
        summary="What keeps how much alive: by root, by block, by type, no byte counted twice",
        description="A root, or a block, retains what would be unreachable without it: what every path from any root "
        "goes through it for. Bytes that several roots lead to are kept by none of them alone. A root is a variable, a "
        "module's data where variables are not known, a thread's stack, registers or thread-local storage, a mapping. "
        "Interior pointers count. Of blocks in a chain the first is shown: one that keeps more than "
        "half of what the block above it keeps is left out. A type's bytes count what its blocks keep, nested ones "
        "once; those of different types overlap. `own` are the blocks' own bytes, ? is of blocks without a known type.",
        options=(
            Option("top", "int", "show N roots, blocks and types", default=20, metavar="N"),
            Option("flame", "text", "also write who keeps what, in folded form for flame graphs", metavar="FILE",
                   names="file"),
            _CLEAR,
            _MANGLED,
        ),
        example="blocks retained --top 10",
    ),
    CommandSpec(
        "blocks types",
        run="types:examine",
        summary="What each block in use is: class, structure, container, Python object, text",
        description="`recognised by`, surest first: vtable (the C++ class that the block's first word names, no debug "
        "info needed); python (CPython's type object); container (buffers and nodes of libstdc++'s containers, by "
        "debug info); debug info (the type of the pointers that lead to it from variables and members); shape (element "
        "or bins of a table that gx shapes knows); similarity (leaked, and similar to blocks of one type); text, zeros "
        "and pointers (its first 64 bytes look so). `X[]` are several one after the other.\n\nConfidence: high, the "
        "block has the size that the type needs and its pointers lead somewhere; medium, it is larger, so it may be "
        "something that only begins so; low, pointers disagree, it lies in a union, or it is known by its contents "
        "alone. `void *` and `char *` say nothing of a type.",
        options=(
            Option("by-size", "flag", "group unknown blocks by size"),
            Option("list", "text", "list the blocks of the types so named, or whose names hold NAME", metavar="NAME"),
            _CLEAR,
            _MANGLED,
        ),
        example="blocks types --by-size\nblocks types --list 'std::map<int, Session> node'",
    ),
    CommandSpec(
        "walklist",
        run="walklist:walk",
        summary="Walk a list, a table of bins, or a group of tables: how many entries, and why each chain ended",
        description="What EXPR is follows from the shape of its type (gx shapes list), or from the options; a shape of "
        "global variables needs none, --shape NAME alone. Per table: "
        "`counted` is its own count, `entries` what was walked, `longest` the longest chain and `in bin` where; `ends` "
        "counts chains by the reason of their end. Sound ends are null, head, sentinel and count; bad-pointer, cycle, "
        "decode-error, forbidden and absent are listed under Problems with the place.\n\nMEMBER is a member, a path "
        "(a.b, p->q, a[0]) or an offset (0x38, +0x38:4). N and S may be expressions. $elem in CMD and COND is a "
        "pointer to the element; quote them. --each runs CMD for the first 100 elements, --limit 0 for all. With "
        "--check the exit status of the shell program is 1 when anything is wrong.",
        options=(
            *STRUCTURE_OPTIONS,
            Option("check", "flag", "verify links back, tails, counts, and each entry's bin"),
            Option("where", "text", "only elements for which this is true", metavar="COND", names="expression"),
            Option("each", "text", "run a command of gdb for each element", metavar="CMD"),
            Option("addresses", "flag", "print bare addresses, one per line, for pipes", short="a"),
        ),
        expression="EXPR",
        example="walklist rrset_cache\nwalklist env.queue --next link.next --where '$elem->state == 3'",
    ),
    CommandSpec(
        "listcount",
        run="walklist:count",
        summary="Count the nodes of one list, and say why it ended",
        description="HEAD is a node, a pointer to the first node, or a head whose shape is known; NEXT is the link to "
        "the next node: a member, a path or an offset. Nothing is formatted: millions of nodes take a second.",
        options=STRUCTURE_OPTIONS,
        words="HEAD NEXT",
        example="listcount 'table->array[11216].overflow_list' overflow_next",
    ),
    CommandSpec(
        "listprint",
        run="walklist:show",
        summary="Print the elements of one list, by gdb's pretty-printers",
        description="HEAD and NEXT are as in listcount. FIELD is a member or path of the element, or an expression "
        "over $elem, a format of gdb before it ('/x hash'); several are given by several --field, or separated by "
        "commas. Without any the whole element is "
        "printed. 100 elements are shown, --limit 0 shows all.",
        options=(
            *STRUCTURE_OPTIONS,
            Option("field", "text", "print this member; may be repeated", metavar="FIELD", many=True),
        ),
        words="HEAD NEXT",
        example="listprint queue.first next --field id --field name --limit 20",
    ),
    CommandSpec(
        "slabskew",
        run="slabskew:examine",
        summary="How evenly a hash table fills its bins, and the cause where it does not",
        description="Per table: `load` is entries per bin, `empty` the share of empty bins; `p50` and `p99` are "
        "lengths of bins that are not empty; `fair` is the greatest length that chance would give a good hash at this "
        "load; `hashes` counts different stored hashes, `misplaced` entries whose hash belongs elsewhere. Of open "
        "addressing the length of a slot is the number of entries whose look-up starts there.\n\nVerdicts: ok, hot-bin "
        "(different hashes, one bin), equal-hash-flood (one hash, one key), stale-hash (one hash, different keys), "
        "weak-hash (few hashes, or few bins), misplaced, slab-skew, table-too-small, mid-rehash (no fault). "
        "Thresholds: show gx. From the shell the exit status is 1 unless it is ok or mid-rehash.",
        options=STRUCTURE_OPTIONS,
        expression="EXPR",
        example="slabskew rrset_cache",
    ),
    CommandSpec(
        "lockwait",
        run="lockwait:examine",
        summary="Which thread waits for what, held by whom, and what the holder is doing",
        description="Read the findings first: a deadlock is a ring of threads, a convoy many behind one; the root of "
        "a convoy is the thread to examine (`thread apply N bt`). A lock that is merely busy is no finding, and "
        "stands under `Who waits for whom`.\n\nOne row a thread: what it does, and the lock or thread that it waits "
        "for, read from its registers and the lock's own memory; libc's debug info is not needed. `confidence` is "
        "high when names, types or the object itself leave no doubt, low when other kinds of lock would look the "
        "same. `in` is the first function that is neither libc's nor a lock's, with file and line where debug info "
        "has them.\n\nA lock without an owner field (spinlock, semaphore, condition variable) shows who mentions its "
        "address in a register or on top of the stack: a holder by mention, marked ?. Deadlocks follow only from what "
        "locks say themselves. Of threads that wait in a function of a known program or runtime (MariaDB, PostgreSQL, "
        "Java, Python, Go, Rust) for what no lock names the owner of, a line says who knows it.\n\nWhere somebody "
        "waits for a lock, the program's hash tables are examined (set gx table-search-variables): a lock in one gets "
        "its name, a holder in a long chain its place there. --in EXPR names a list or table that is not found by "
        "itself.\n\nOne sample cannot tell stuck from slow. From the shell, gdbext lockwait --pid PID --samples 3 "
        "--interval 2 lets the process go on between them. In gdb a stopped process does not move, so there is no "
        "such option: write --json=FILE, continue, interrupt, and --compare=FILE; the same for two cores of one "
        "process. Verdicts: stuck (same holder at the same place), slow (same holder, moving), moving, new, gone; "
        "same holder and same waiters where nothing more is known.\n\nFrom the shell the exit status is 1 when there "
        "are findings.",
        options=(
            Option("stacks", "flag", "group equal stacks (by address) instead, with their threads"),
            Option("compare", "text", "say what has moved since FILE, an earlier --json=FILE", metavar="FILE",
                   names="file"),
            Option("in", "text", "look for locks and holders in this list or table too", metavar="EXPR", many=True,
                   names="expression"),
            Option("shape", "text", "take what --in names for this shape", metavar="NAME", names="shape"),
            Option("heap", "flag", "walk the heap, to name the blocks that locks are in"),
            Option("dot", "text", "also write the wait-for graph; drawn where FILE ends in .svg", metavar="FILE",
                   names="file"),
            Option("flame", "text", "also write folded stacks for flame graphs", metavar="FILE", names="file"),
        ),
        example="lockwait\nlockwait --compare=/tmp/before.json --dot /tmp/locks.svg",
    ),
    CommandSpec(
        "compare",
        run="compare:compare",
        summary="What grew and what shrank between cores, samples or moments of a process, and what goes on growing",
        description="Of the first sample and the last: memory by owner, heap, arena, size, type, leak, root, table, "
        "thread and mapping, most changed first; of all samples what each does: flat, warming up, up and down, "
        "growing. Samples of one process also say which blocks are new, gone and kept, and how much of what came "
        "between two samples is still there. Other processes are compared by names, types and sizes, never by "
        "addresses.\n\nOLD is a core, a recording (gdbext record), or a file with a sample. In gdb what is selected "
        "is the last sample; an OLD core is read there without its names. From the shell, gdbext compare OLD NEW…, "
        "gdbext compare RECORDING or gdbext compare --pid PID --every 30s --times 10.\n\nA finding is a warning "
        "where its shape has outlasted a start: of fewer than 8 samples (6, where blocks show that nothing is freed) "
        "it is a remark with low confidence, and no reason for exit status 1. docs/growth.md has the rule.",
        options=_COMPARED,
        words="OLD…",
        names="file",
        example="gx compare /tmp/core.monday",
        prefixed_only=True,
        target="optional",
        debugger="target",
        several=2,
    ),
    CommandSpec(
        "shapes list",
        run="shapes:list_shapes",
        debugger="target",
        summary="The shapes that are known: how lists and tables of known programs are laid out",
        description="Those of gdbext and your own, from the folder that `set gx shapes-folder` names; of equal names "
        "yours rules. `types` is what a shape fits by itself; --shape NAME takes any. docs/shapes.md has the language.",
        example="gx shapes list",
        prefixed_only=True,
        shown=0,
        target="none",
    ),
    CommandSpec(
        "shapes show",
        run="shapes:show",
        debugger="target",
        summary="One shape whole, and which of its types this program has",
        description="`members from` says where offsets come from: debug info, or the declarations in the shape itself. "
        "Types with * or ? in their names are not searched for.",
        expression="NAME",
        example="gx shapes show unbound-lruhash",
        names="shape",
        missing=("a shape's name is missing", "gx shapes list has them"),
        prefixed_only=True,
        shown=0,
        target="optional",
    ),
    CommandSpec(
        "shapes guess",
        run="shapes:guess",
        summary="Propose a shape for a type, as a file ready to be saved and corrected",
        description="A pointer to its own structure is a link, an array of what leads to such nodes beside a size or "
        "mask is a table, an array of tables a group. Open addressing is not guessed. Lines with # say why, and what "
        "else it may be; check them.",
        expression="TYPE",
        example="gx shapes guess struct lruhash",
        missing=("a type is missing", "gx shapes guess struct table"),
        prefixed_only=True,
    ),
    CommandSpec(
        "shapes save",
        run="shapes:save",
        summary="Write a shape in offsets, for the same program without type information",
        description="WHAT is a type, or a shape's name; FILE becomes the new shape's name and must not exist. A group "
        "is written to two files, the tables' ends in -table.toml. Offsets hold for programs built alike, variables "
        "for the same files mapped.",
        words="WHAT FILE",
        names="file",
        example="gx shapes save struct slabhash ~/.config/gdbext/shapes/my-slabs.toml",
        prefixed_only=True,
    ),
    CommandSpec(
        "commands",
        run="gx:list_commands",
        summary="List the commands of gdbext, and which of their names are taken by others",
        description="Every command answers as `gx NAME`; as plain `NAME` unless somebody else owns its "
        "first word. Versions and the kernels in use stand below the table.",
        example="gx commands",
        prefixed_only=True,
        target="none",
    ),
    CommandSpec(
        "breakpoints",
        run="breakpoints:breakpoints_command",
        summary="Set conditional breakpoints that print one line and go on",
        description="chain LOCATION: acts when the list at --head, linked by --next, is longer than --longer.\n\n"
        "hash LOCATION: acts when --stored is not what the same thread computed last, which is --computed at "
        "--computed-at.\n\nevery LOCATION: acts at each --hits-th hit, and counts the list at --head.\n\nlist; "
        "delete NUMBER… or all: those set by this command.\n\nEach event is one line: time, thread, number of the "
        "breakpoint, figures. The program goes on by itself, whatever fails; with --stop it stops. Expressions are "
        "evaluated at LOCATION; one that has no value there makes the condition false. The plain commands of gdb are "
        "printed, to be edited and used again. `events` counts the hits with a true condition. The action event, "
        "with --counted and --noted, is what those command lists call.",
        options=(
            Option("head", "text", "the list: pointer to its first node, or its head", metavar="EXPR",
                   names="expression"),
            Option("next", "text", "the link in a node: name, path or offset", metavar="MEMBER"),
            Option("longer", "int", "act when the list has more than N nodes", metavar="N"),
            Option("hits", "int", "act at each K-th hit", metavar="K"),
            Option("stored", "text", "the hash in the entry", metavar="EXPR", names="expression"),
            Option("computed", "text", "the hash that was computed", metavar="EXPR", names="expression"),
            Option("computed-at", "text", "where it has just been computed", metavar="LOCATION"),
            Option("run", "text", "also run this command, safely", metavar="CMD", many=True),
            Option("stop", "flag", "stop instead of going on"),
            Option("noted", "text", "of event: under which name the hash is noted", metavar="NAME"),
            Option("counted", "text", "of event: under which name hits are counted", metavar="NAME"),
        ),
        words="ACTION [LOCATION]",
        values=("chain", "hash", "every", "list", "delete", "event"),
        example="gx breakpoints chain insert.c:30 --head bin->first --next next --longer 20",
        prefixed_only=True,
    ),
    CommandSpec(
        "safe",
        run="gx:run_safely",
        summary="Run a command and record its error instead of raising it",
        description="For command lists of breakpoints, which gdb ends at the first error. The error is "
        "printed and kept in $gx_error, which is void after a success: test it with $_isvoid($gx_error).",
        expression="COMMAND",
        names="command",
        example="gx safe glibc check",
        prefixed_only=True,
        raw=True,
    ),
)

_RECORDING = ("timeout", "gdb", "swapped", "max-memory", "help")
# What is recorded of a process, and how: of record and watch.
SAMPLING_OPTIONS: Sequence[Option] = (
    next(option for option in SHELL_OPTIONS if option.name == "pid"),
    Option("comm", "text", "the process of this name; when it has ended, the next one that has it", metavar="NAME"),
    Option("for", "duration", "how long; otherwise until the process ends, or Ctrl-C", metavar="TIME"),
    Option("budget", "share", "how much of the time the process may stand still for it (default 1%); fewer samples "
           "are taken where that is not enough", metavar="PERCENT%"),
    Option("depth", "choice", "what is measured: sizes (owners, arenas, sizes of blocks, threads, mappings), tables "
           "(entries of hash tables, too), types (types, leaks and roots, too), or auto (types of up to a million "
           "blocks, else sizes)", ("auto", "sizes", "tables", "types"), "auto", "WHAT"),
    Option("names", "flag", "borrow a gdb for the names of types and variables, and for hash tables; each sample takes "
           "longer, the process stands still no longer"),
)

_FILES = ("sysroot", "debug-dir", "cache", "debuginfod", "gdb")
_OPENING = ("core", "exe", "pid", *_FILES, "swapped", "max-unpacked", "max-memory", "help")

_COPYING = ("pid", "max-pause", "swapped", "timeout", "help")
_ASKING = tuple(option for option in SHELL_OPTIONS if option.name in ("json", "help"))

OWN_COMMANDS: Sequence[CommandSpec] = (
    CommandSpec(
        "record",
        run="cli.record:record",
        summary="Keep small figures of a process over time, and snapshots when a threshold is passed",
        description="DIR/samples.jsonl gains a line for each sample: memory by owner, arena, size of block, thread and "
        "mapping. `gdbext compare DIR` says what has grown. A recording that is in DIR goes on; one that is killed, or "
        "finds the disk full, has whole lines. SIGUSR1 takes a snapshot now, SIGTERM and Ctrl-C end it.\n\n"
        "A condition is `rss`, `heap` (bytes in use), `blocks` (in use) or `threads`, one of > >= < <=, and a size or "
        "a count; or `grown > 20% after 10m`: rss compared with the first sample after 10 minutes. Each time that one "
        "becomes true, a snapshot is taken, as far as --most-snapshots and the disk allow it.\n\nExit status: 1 when a "
        "condition became true, else 3 when samples were lost or could not be taken, or a condition not be examined.",
        options=(
            *SAMPLING_OPTIONS[:2],
            Option("every", "duration", "time between two samples (default 1m)", metavar="TIME"),
            *SAMPLING_OPTIONS[2:],
            Option("output", "text", "the folder of the recording", metavar="DIR", short="o", names="folder"),
            Option("when", "text", "take a snapshot when this becomes true", metavar="CONDITION", many=True),
            Option("most-snapshots", "int", "how many snapshots there may be in DIR", default=3, metavar="N"),
            Option("at-end", "flag", "take a snapshot at the end, too"),
            *(option for option in SHELL_OPTIONS if option.name in _RECORDING),
        ),
        example="gdbext record --pid 2914 --every 1m --for 2h -o leak --when 'grown > 20% after 10m'",
        own=True,
    ),
    CommandSpec(
        "watch",
        run="cli.watch:watch",
        summary="Show on the terminal what grows in a process, live",
        description="The figures of `gdbext record`, with the change since the sample before and since the first one, "
        "and their course; what has grown most stands below. Where standard output is no terminal, or a dumb one, each "
        "sample is a line. Ctrl-C ends it.",
        options=(
            *SAMPLING_OPTIONS[:2],
            Option("every", "duration", "time between two samples (default 5s)", metavar="TIME"),
            *SAMPLING_OPTIONS[2:],
            *(option for option in SHELL_OPTIONS if option.name in (*_RECORDING, "color")),
        ),
        example="gdbext watch --pid 2914 --every 2s",
        own=True,
    ),
    CommandSpec(
        "open",
        run="cli.interactive:open_target",
        summary="Start gdb on a core or a process, with gdbext and everything else loaded",
        description="The executable is chosen as for all commands: the one that the core names, if that has the same "
        "build-id; a packed core is unpacked first, and removed when gdb ends. Your own init files are read. A word of "
        "digits is a process: ./1234 is a file.",
        options=tuple(option for option in SHELL_OPTIONS if option.name in _OPENING),
        words="CORE|PID",
        names="file",
        example="gdbext open core.1234",
        own=True,
    ),
    CommandSpec(
        "snapshot",
        run="cli.snapshot:take",
        summary="Copy a process to a core, for which it stands still for a moment only",
        description="Memory for the copy is made first, then the process is stopped, copied and let go; the file is "
        "written afterwards, for its owner alone. It is a core, for gdb and all that reads cores, and it has what "
        "cores lack: what was in RAM, names of threads and mappings. Memory marked MADV_DONTDUMP is left out. Where "
        "something is missing, that is said, and the exit status is 3.",
        options=(
            Option("output", "text", "the file; otherwise snapshot.PID, here", metavar="FILE", short="o", names="file"),
            Option("compress", "flag", "pack it, by zstd if there is such a program, else by gzip"),
            *(option for option in SHELL_OPTIONS if option.name in _COPYING),
        ),
        example="gdbext snapshot --pid 1234 -o before.core",
        own=True,
    ),
    CommandSpec(
        "fleet run",
        run="fleet.command:run",
        summary="Examine many cores, several at once, and put their rows into a dataset",
        description="SOURCE is a core, a folder (all files in it), a pattern, - for names on standard input, one a "
        "line, coredumpctl for what systemd keeps, or a URL such as s3://bucket/prefix. Each core is examined in a "
        "process of its own, with limits of memory and time, by triage, blocks summary, blocks leaks, blocks types and "
        "lockwait; packed cores are unpacked. gdb is borrowed for names where a file of the core's is on this "
        "machine.\n\nDIR, a folder or a URL, gets Parquet files, a folder for each kind of row: docs/fleet.md has "
        "them. What has rows already is "
        "passed over, so running again goes on where it was stopped, however it ended. A core without an "
        "answer has a row that says why. The exit status is 0 once each core has its rows.",
        options=(
            Option("output", "text", "the dataset", metavar="DIR", short="o", names="folder"),
            Option("commands", "text", "only these, comma-separated; triage is always one", metavar="NAMES",
                   values=("triage", "blocks summary", "blocks leaks", "blocks types", "lockwait")),
            Option("jobs", "int", "processes at once (default: as many as processors)", metavar="N", short="j"),
            Option("memory", "size", "how much all of them may take (default: 80 % of what is free)", metavar="SIZE"),
            Option("host", "text", "the host a core is from: the first group of REGEX in its path", metavar="REGEX"),
            Option("scheduler", "text", "have the workers of a Dask cluster examine the cores", metavar="tcp://ADDRESS"),
            Option("metrics", "text", "write figures of the dataset for Prometheus", metavar="FILE", names="file"),
            Option("retry", "flag", "examine cores again that have a row without an answer, and replace it"),
            Option("discard", "flag", "remove the cores once all have their rows"),
            Option("no-cache", "flag", "keep nothing of what is read of files, and use nothing that is kept"),
            Option("no-gdb", "flag", "borrow no gdb: no names of functions, variables and types"),
            *(option for option in SHELL_OPTIONS if option.name in ("timeout", *_FILES, "help")),
        ),
        words="SOURCE...",
        names="file",
        example="gdbext fleet run /var/crash -o crashes --host '/var/crash/([^/]+)/'",
        own=True,
    ),
    CommandSpec(
        "fleet sql",
        run="fleet.command:sql",
        summary="Ask a dataset, in SQL",
        description="Each kind of row is a table: cores, findings, causes, … (docs/fleet.md has the columns, and "
        "questions to begin with). The SQL is DuckDB's; nothing is written.",
        options=_ASKING,
        words="DIR QUERY",
        names="folder",
        example='gdbext fleet sql crashes "select program, count(*) from cores group by program"',
        own=True,
    ),
    CommandSpec(
        "fleet top",
        run="fleet.command:top",
        summary="What most cores have in common: causes by the number of cores",
        description="Each core counts once: for why it died, or else for its worst finding. `signature` is equal for "
        "equal causes, whatever the host, the addresses, the sizes and the patch level.",
        options=(Option("limit", "int", "show N causes (default 20); 0 shows all", metavar="N"), *_ASKING),
        words="DIR",
        names="folder",
        example="gdbext fleet top crashes",
        own=True,
    ),
    CommandSpec(
        "fleet new",
        run="fleet.command:new",
        summary="Causes that were never seen before: exit status 1 where there are any",
        description="A cause is new when the oldest core that has it is not older than --since; cores are as old as "
        "their files. The exit status is 3 where none is new, and a core since then has no answer.",
        options=(
            Option("since", "text", "a number with s, m, h, d or w before now (default 1d)", default="1d",
                   metavar="TIME"),
            *_ASKING,
        ),
        words="DIR",
        names="folder",
        example="gdbext fleet new crashes --since 36h",
        own=True,
    ),
    CommandSpec(
        "fleet report",
        run="fleet.command:report",
        summary="One page about a dataset: causes, what is new, where, since when, the worst cores",
        description="FILE becomes one page of HTML that needs no network and no server: the verdict; causes by "
        "signature, each with its hosts and builds, when it was seen, and the command that goes on with one of its "
        "cores; cores over time; the ten with most memory and most leaked; what could not be examined. Its figures "
        "are those of `fleet sql`; they stand in it as JSON, too.\n\nNames and texts of targets stand in it as text. "
        "--redact leaves them out: programs, hosts, causes, paths are numbered instead.",
        options=(
            Option("output", "text", "write the page", metavar="FILE", short="o", names="file"),
            Option("since", "text", "what is new: a number with s, m, h, d or w before now (default 1d)",
                   default="1d", metavar="TIME"),
            Option("redact", "flag", "show no text of a target's"),
            Option("limit", "int", "show N rows of a list (default 200)", metavar="N"),
            *(option for option in SHELL_OPTIONS if option.name == "help"),
        ),
        words="DIR",
        names="folder",
        example="gdbext fleet report crashes -o crashes.html",
        own=True,
    ),
    CommandSpec(
        "completion",
        run="cli.completion:print_script",
        summary="Print what makes bash, zsh or fish complete gdbext's commands, options and values",
        description="bash: source <(gdbext completion bash), in ~/.bashrc. zsh: source <(gdbext completion zsh), in "
        "~/.zshrc after compinit. fish: gdbext completion fish | source, in ~/.config/fish/config.fish. The names of "
        "shapes are those of now.",
        options=tuple(option for option in SHELL_OPTIONS if option.name == "help"),
        words="bash|zsh|fish",
        names="",
        values=("bash", "zsh", "fish"),
        example="source <(gdbext completion bash)",
        own=True,
    ),
)

SETTINGS: Sequence[Setting] = (
    Setting("min-finding-bytes", 16 << 20, "size", "Findings of fewer bytes and a lesser share stay silent"),
    Setting("min-finding-share", 20, "percent", "Share of writable memory in RAM or core that makes a finding"),
    Setting("min-finding-floor", 4 << 20, "size", "Findings of fewer bytes always stay silent"),
    Setting("hot-bin", 20, "count", "Entries that a bin may hold before it can be called hot"),
    Setting("hot-bin-factor", 2, "count", "Times the greatest fair length that a bin may hold before it is hot"),
    Setting("small-table-load", 8, "count", "Entries per bin from which a hash table is too small"),
    Setting("slab-skew-factor", 2, "count", "Times its fair share that a table of a group may hold"),
    Setting("slab-skew-entries", 1000, "count", "Entries of a group below which shares are not judged"),
    Setting("safe", 0, "flag", "Whether commands of gdbext record their errors instead of raising them"),
    Setting("time-budget", 0, "seconds", "Seconds after which a command stops, not the same in each run; 0 is never"),
    Setting("function-seconds", 1, "seconds", "Seconds after which a $gx_ function stops counting; 0 is never"),
    Setting("copied-memory", 4 << 30, "size", "Bytes of a process copied to search for pointers; 0: any number"),
    Setting("max-memory", 0, "size", "Bytes of our own that a search of blocks takes; 0: nine tenths of what is free"),
    Setting("swapped", 0, "flag", "Whether pages that are swapped out are read, which brings them back into RAM"),
    Setting("shapes-folder", "~/.config/gdbext/shapes", "text", "Folder of your own shapes, beside those of gdbext"),
    Setting("table-search-variables", 200_000, "count", "Variables that triage and lockwait examine for hash tables"),
    Setting("table-search-entries", 50_000_000, "count", "Entries and bins of hash tables that triage walks"),
    Setting("leak-search-seconds", 10, "seconds", "CPU seconds that triage searches a process for leaks; 0 is not"),
    Setting("leak-search-blocks", 0, "count", "Blocks in use up to which triage searches for leaks; 0: any number"),
    Setting("type-search-variables", 200_000, "count", "Variables by which types of blocks are found"),
    Setting("threads", 0, "count", "Threads in which gdbext's own native code works; 0 is one for each core"),
    Setting("convoy-waiters", 3, "count", "Threads behind a holder that waits or is in a long chain that are a convoy"),
    Setting("convoy-many", 16, "count", "Threads behind one holder that are a convoy whatever it does"),
)

# Names of ours that another pack owns: never registered plainly, whether or not it is loaded. Held
# against the pinned lists in tests/gdb/data.
FOREIGN_NAMES: Mapping[str, str] = {"heap": "pwndbg and GEF", "jemalloc": "pwndbg", "python": "gdb", "slab": "pwndbg"}


# What the commands are about: each by its name, or by the first word of several.
TOPICS: Mapping[str, Sequence[str]] = {
    "Overview": ("triage", "rss", "compare", "report", "heapmap"),
    "Blocks of the heap": ("blocks",),
    "Locks and threads": ("lockwait",),
    "Lists, tables and trees": ("walklist", "listcount", "listprint", "slabskew", "shapes"),
    "glibc's malloc": ("glibc",),
    "jemalloc": ("jemalloc",),
    "CPython": ("python",),
    "gdbext itself": ("commands", "breakpoints", "safe"),
}


def commands_about(topic: str) -> Sequence[CommandSpec]:
    """Return the rows of a topic, in the table's order."""
    names = TOPICS[topic]
    return [spec for spec in COMMANDS if spec.name.split()[0] in names]


def find_command(name: str) -> Optional[CommandSpec]:
    """Return the row of that name among the commands of gdb, or None."""
    return next((spec for spec in COMMANDS if spec.name == name), None)


def find_own(name: str) -> Optional[CommandSpec]:
    """Return the row of that name among the program's own commands, or None."""
    return next((spec for spec in OWN_COMMANDS if spec.name == name), None)


def default_settings(changed: Mapping[str, int]) -> Mapping[str, int]:
    """Return every setting that is a number, with some of them changed.

    :raises UsageError: there is no setting of that name, or it has no such value.
    """
    known = {setting.name: setting.default for setting in SETTINGS if isinstance(setting.default, int)}
    for name, value in changed.items():
        if name not in known:
            raise UsageError(f"no setting {name!r}", f"there are {', '.join(known)}")
        if not isinstance(value, int) or not 0 <= value < 1 << 63:
            raise UsageError(f"{name}: {value!r} is not a number of 0 or more")
    return {**known, **changed}
