"""What a type looks like: members that may be links, arrays with their sizes; and a shape proposed from them.

Members are judged by their types first, by their names second. Open addressing is never guessed, and neither
is whether a ring ends at its head.
"""

from __future__ import annotations

import re
from typing import Collection, Iterator, NamedTuple, Optional, Sequence

from gdbext.errors import UsageError
from gdbext.layout.types import Code, Field, Type, bare_name
from gdbext.structures.shapes.notation.paths import parse_path
from gdbext.structures.shapes.notation.tomltext import Document

_DEEPEST = 4
_FEW = 4  # items of an array that may stand for as many tables
_NEXT = ("next", "nxt", "overflow", "chain", "link", "succ", "forw", "flink")
_PREV = ("prev", "back", "blink", "parent", "left", "right", "up", "owner")
_KIND = {"type", "class", "base", "meta"}  # words of members that lead to what a thing is, not to the next thing
_FIRST = ("first", "head", "start", "list", "top", "front", "root")
_LAST = ("last", "tail", "end", "rear")
_SIZE = (
    "n_bins",
    "nbins",
    "n_buckets",
    "nbuckets",
    "num_buckets",
    "num_bins",
    "buckets",
    "bins",
    "slots",
    "size",
)
_SIZES_TOO = ("capacity", "alloc", "width")
_MASK = ("mask",)
_BITS = ("bits", "power", "exp", "log")
_ENTRIES = ("num", "entries", "count", "items", "used", "nodes", "len", "elements", "size")
_HASH = ("hash", "hval", "hv", "h", "fullhash", "hashcode")
_KEY = ("key", "name", "k")
_LOCK = ("lock", "mutex", "mtx")


class Link(NamedTuple):
    """A member that may lead to the next node.

    :param path: of the member.
    :param inner: the structure around it, where links lead to that instead of the whole node; else "".
    """

    path: str
    inner: str = ""

    @property
    def leaf(self) -> str:
        """The member's own name."""
        return self.path.rpartition(".")[2]


class Guess(NamedTuple):
    """A shape proposed for a type.

    :param kind: ``list``, ``bins`` or ``group``.
    :param text: the shape file.
    :param reasons: what was recognised, one line each.
    """

    name: str
    kind: str
    text: str
    reasons: Sequence[str]


class _Member(NamedTuple):
    path: str
    type: Type

    @property
    def leaf(self) -> str:
        """Its own name in lower case, without an index."""
        return self.path.rpartition(".")[2].partition("[")[0].lower()


class _Bins(NamedTuple):
    """An array of bins: where, what leads from a bin to its first node, which node."""

    array: _Member
    head: str
    node: Type


def find_links(type: Type) -> Sequence[Link]:
    """Return the members of a node that lead to nodes of its kind, the likeliest next link first."""
    links = [link for link in _links(type, type, "", 0) if not _is_kind(link.leaf.lower())]
    return sorted(links, key=lambda link: _rank_of_link(link.leaf))


def find_heads(type: Type) -> "Sequence[tuple[str, str]]":
    """Return the members of a structure that lead to linked nodes, and the likeliest link of each."""
    heads = [
        (member.path, member.type.target) for member in _members(type, "", 0) if _target_links(member.type)
    ]
    return [(path, _link_for(node, path).path) for path, node in heads if node is not None]


def guess(type: Type) -> Guess:
    """Propose a shape for a type.

    :raises UsageError: when nothing in it looks like a list or a table.
    """
    if type.code is Code.POINTER and type.target is not None:
        type = type.target
    proposal = _Proposal(type)
    if not type.is_record or not proposal.find():
        raise UsageError(
            f"nothing in {type.name} looks like a list or a table",
            "a link is a pointer to its own structure, a table an array of them beside a size; "
            "docs/shapes.md says how to write a shape",
        )
    return proposal.finish()


class _Proposal:
    """One shape being proposed."""

    def __init__(self, type: Type, alone: bool = True) -> None:
        self.type = type
        self.alone = alone  # against: one of a group
        self.name = _shape_name(type)
        self.kind = ""
        self.out = Document()
        self.reasons: "list[str]" = []
        self.members = list(_members(type, "", 0)) if type.is_record else []

    def find(self) -> bool:
        """Write the first thing that the type looks like; return whether there is one."""
        return self._try_bins() or (self.alone and self._try_group()) or self._try_node() or self._try_head()

    def finish(self) -> Guess:
        head = Document()
        head.comment(
            f"Guessed from the members of {self.type.name}: check it before you believe what it shows."
        )
        for reason in self.reasons:
            head.comment(reason)
        head.keys(
            (
                ("name", self.name),
                ("summary", f"Guessed from {self.type.name}"),
                ("kind", self.kind),
                ("types", [self.type.tag]),
            )
        )
        return Guess(self.name, self.kind, head.text + self.out.text, tuple(self.reasons))

    # -- tables

    def _try_bins(self) -> bool:
        found = [bins for bins in map(_bins_at, self.members) if bins is not None]
        sized = [(bins, count) for bins in found for count in [self._count(bins)] if count is not None]
        if not sized:
            return False
        self.kind = "bins"
        bins, count = sized[0]
        mask = self._named(_MASK)
        self.reasons.append(
            f"{bins.array.path} is an array of bins, each leading to {bins.node.name}; {count} says how many"
        )
        bits = self._named(_BITS) if count == "1 << bits" else None
        if mask or bits:
            self.out.section("let")
            self.out.keys((("mask", mask), ("bits", bits)))
        self._bins(bins, count, bool(mask))
        self._node(bins.node, bins.head)
        self._table(bins, count)
        self._also("array", [other.array.path for other, _ in sized[1:]])
        if bins.array.path.endswith("[0]"):
            self.out.comment(
                "a second [[bins]] with [1] for [0] and a condition `when`, if there are two tables"
            )
        self._lru(bins.node, bins.head)
        return True

    def _bins(self, bins: _Bins, count: str, mask: bool) -> None:
        self.out.section("bins", many=True)
        self.out.key("array", bins.array.path)
        if count.isdigit():
            self.out.key("count", int(count))
        else:
            self.out.key("count", count)
        self.out.key("head", bins.head if bins.head != "self" else None)
        if self._stored_hash(bins.node) is None:
            return
        if mask:
            self.out.key("bin_of", "hash & mask")
        else:
            self.out.comment(
                'bin_of = "hash % bins" or "hash & (bins - 1)": how a stored hash chooses its bin'
            )

    def _table(self, bins: _Bins, count: str) -> None:
        taken = {bins.array.path, count, self._named(_MASK)}
        entries = self._named(_ENTRIES, taken)
        lock = _find_named([member for member in self.members if "." not in member.path], _LOCK, None)
        bin_type = bins.array.type.target
        inner = list(_members(bin_type, "", 0)) if bin_type is not None and bin_type.is_record else []
        bin_lock = _find_named(inner, _LOCK, None)
        if entries or lock or bin_lock:
            self.out.section("table")
            self.out.keys((("entries", entries), ("lock", lock), ("bin_lock", bin_lock)))
            if entries:
                self.reasons.append(f"{entries} counts the entries")

    def _lru(self, node: Type, head: str) -> None:
        """Write a second list through the nodes, where the object has the ends of one."""
        ends = [member.path for member in self.members if _leads_to(member.type, node)]
        first = next((path for path in ends if _has(path, _FIRST)), None)
        near = [link for link in find_links(node) if first and _alike(first, link.path) and not link.inner]
        if first is None or not near or near[0].path == _link_for(node, head).path:
            return
        links = {link.path for link in near if _rank_of_link(link.leaf) < 100}
        back = [link.path for link in near if link.path not in links]
        if not links:
            return
        self.out.section("lru")
        self.out.keys(
            (
                ("first", first),
                ("last", next((path for path in ends if _has(path, _LAST)), None)),
                ("next", sorted(links)[0]),
                ("prev", next(iter(back), None)),
            )
        )
        self.reasons.append(f"{first} leads to a second list through all entries")

    def _count(self, bins: _Bins) -> Optional[str]:
        """Return how many bins an array has, as a shape writes it; None where nothing tells."""
        if bins.array.type.code is Code.ARRAY and bins.array.type.length:
            return str(bins.array.type.length)
        powers = {member.path for member in self.members if _has(member.leaf, _BITS)}
        size = self._named(_SIZE, powers) or self._named(_SIZES_TOO, powers)
        if size is not None:
            return size
        if self._named(_BITS):
            return "1 << bits"
        return "mask + 1" if self._named(_MASK) else None

    def _try_group(self) -> bool:
        for member in self.members:
            item = member.type.target if member.type.code in (Code.POINTER, Code.ARRAY) else None
            indirect = item is not None and item.code is Code.POINTER
            table = item.target if item is not None and indirect else item
            is_array = member.type.code is Code.ARRAY or indirect
            if table is None or not table.is_record or not is_array or find_links(table):
                continue
            count = str(member.type.length) if member.type.length else self._named((*_SIZE, *_ENTRIES))
            if count and _Proposal(table, alone=False).find():
                self._group(member, count, indirect, table)
                return True
        return False

    def _group(self, member: _Member, count: str, indirect: bool, table: Type) -> None:
        self.kind = "group"
        self.reasons.append(
            f"{member.path} is an array of {table.name}, each of which looks like a table or list"
        )
        self.out.section("group")
        self.out.key("array", member.path)
        self.out.key("count", int(count) if count.isdigit() else count)
        self.out.key("indirect", indirect or None)
        self.out.key("of", _shape_name(table), f"gx shapes guess {table.name}, or a shape that fits it")
        self.out.comment('slab_of = "(hash & mask) >> shift": how a stored hash chooses its table')

    # -- lists

    def _try_node(self) -> bool:
        links = find_links(self.type)
        if not links:
            return False
        self.kind = "list"
        self.reasons.append(f"{links[0].path} leads to another {self.type.name}, so this is a node")
        self.out.section("list")
        self.out.key("first", "self")
        self.out.comment(f'if it is the head of a ring and no node: first = "{links[0].path}", end = "head"')
        self._node(self.type, "")
        return True

    def _try_head(self) -> bool:
        heads = [member for member in self.members if _target_links(member.type)]
        if not heads:
            return False
        heads.sort(key=lambda member: 0 if _has(member.path, _FIRST) else 2 if _has(member.path, _LAST) else 1)
        node = heads[0].type.target
        assert node is not None
        self.kind = "list"
        self.reasons.append(f"{heads[0].path} leads to {node.name}, which is linked")
        last = next((m.path for m in heads[1:] if _has(m.path, _LAST) and _leads_to(m.type, node)), None)
        self.out.section("list")
        self.out.keys((("first", heads[0].path), ("last", last), ("entries", self._named(_ENTRIES))))
        self._also("first", [member.path for member in heads[1:] if member.path != last])
        self._node(node, heads[0].path)
        return True

    # -- parts

    def _node(self, node: Type, head: str) -> None:
        """Write the node: its links, and the hash and key where it looks as if it had them."""
        link = _link_for(node, head)
        links = find_links(node)
        prev = _prev_for(links, link)
        self.out.section("node")
        self.out.key("next", link.path)
        self.out.key("prev", prev)
        self._also("next", [other.path for other in links if other.path not in (link.path, prev)])
        hashed, key = self._stored_hash(node), _find_key(node)
        self.out.keys((("hash", hashed), ("key", key.path if key else None)))
        if key is not None and key.type.code is Code.ARRAY:
            self.out.key("key_is", "inline")
        elif key is not None and key.type.code is Code.INTEGER:
            self.out.key("key_is", "value")
        elif key is not None and _is_text(key.type):
            self.out.key("key_is", "string")
        self.reasons.append(f"{link.path} leads from {node.name} to the next")
        offset = parse_path(link.inner).bind(node).offset if link.inner else 0
        if offset:
            self.out.section("link")
            self.out.key("relative", -offset, f"links lead to {link.inner}, not to the node")

    def _also(self, key: str, paths: Sequence[str]) -> None:
        for path in paths:
            self.out.comment(f'or {key} = "{path}"')

    def _stored_hash(self, node: Type) -> Optional[str]:
        return _find_named(list(_members(node, "", 0)), _HASH, Code.INTEGER)

    def _named(self, words: Sequence[str], taken: "Collection[Optional[str]]" = ()) -> Optional[str]:
        return _find_named([each for each in self.members if each.path not in taken], words, Code.INTEGER)


def _members(type: Type, prefix: str, depth: int) -> Iterator[_Member]:
    """Iterate over the members of a structure and of the structures in it, outer ones first."""
    inner = []
    for member in type.fields:
        path = _joined(prefix, member)
        if member.type.is_record:
            inner.append((member.type, path))
        if member.name and not member.is_base:
            yield _Member(path, member.type)
            yield from _first_of_few(path, member.type)
    if depth < 2:
        for record, path in inner:
            yield from _members(record, path, depth + 1)


def _first_of_few(path: str, type: Type) -> Iterator[_Member]:
    """Iterate over the first item of a short array: a table that is rehashed has two of most members."""
    few = type.code is Code.ARRAY and 1 < (type.length or 0) <= _FEW
    if few and type.target is not None and type.target.size > 1 or (few and _has(path, _BITS)):
        assert type.target is not None
        yield _Member(f"{path}[0]", type.target)
        if type.target.is_record:
            yield from _members(type.target, f"{path}[0]", 2)


def _links(whole: Type, type: Type, prefix: str, depth: int) -> Iterator[Link]:
    for member in type.fields:
        path = _joined(prefix, member)
        if member.type.code is Code.POINTER and _same(member.type.target, whole):
            yield Link(path)
        elif depth and member.type.code is Code.POINTER and _same(member.type.target, type):
            yield Link(path, prefix)
        elif member.type.is_record and depth < _DEEPEST:
            yield from _links(whole, member.type, path, depth + 1)


def _joined(prefix: str, member: Field) -> str:
    name = "" if member.is_base else member.name
    return f"{prefix}.{name}" if prefix and name else prefix or name


def _same(one: Optional[Type], other: Type) -> bool:
    return one is not None and one.is_record and one.tag == other.tag


def _leads_to(type: Type, node: Type) -> bool:
    return type.code is Code.POINTER and _same(type.target, node)


def _target_links(type: Type) -> Sequence[Link]:
    if type.code is not Code.POINTER or type.target is None or not type.target.is_record:
        return ()
    return find_links(type.target)


def _bins_at(member: _Member) -> Optional[_Bins]:
    """Return the bins that a member holds or points to, or None."""
    item = member.type.target if member.type.code in (Code.POINTER, Code.ARRAY) else None
    if item is None:
        return None
    if item.code is Code.POINTER:
        return _Bins(member, "self", item.target) if item.target is not None and _target_links(item) else None
    if not item.is_record or find_links(item):
        return None
    for inner in _members(item, "", 0):
        if inner.type.target is not None and _target_links(inner.type):
            return _Bins(member, inner.path, inner.type.target)
    return None


def _link_for(node: Type, head: str) -> Link:
    """Return the link that goes with a head: one of the same first word, or else the likeliest."""
    links = find_links(node)
    return next((link for link in links if head and _alike(head, link.path) and _forward(link)), links[0])


def _prev_for(links: Sequence[Link], link: Link) -> Optional[str]:
    """Return the link back that goes with a link, and with no other."""
    rivals = [
        other for other in links if _forward(other) and other != link and not _alike(other.path, link.path)
    ]
    for other in links:
        claimed = any(_alike(other.path, rival.path) for rival in rivals)
        if other.inner == link.inner and not claimed and _has(other.leaf, ("prev", "back", "blink")):
            return other.path
    return None


def _forward(link: Link) -> bool:
    return _rank_of_link(link.leaf) < 100


def _rank_of_link(name: str) -> int:
    lower = name.lower()
    if any(word in lower for word in _PREV):
        return 100
    return next((at for at, word in enumerate(_NEXT) if word in lower), 50)


def _is_kind(name: str) -> bool:
    return not _KIND.isdisjoint(name.split("_")) and not _has(name, _NEXT)


def _alike(one: str, other: str) -> bool:
    """Whether two members' names begin with the same word: lru_start, lru_next."""
    first, second = (path.rpartition(".")[2].lower() for path in (one, other))
    return "_" in first and "_" in second and first.partition("_")[0] == second.partition("_")[0]


def _has(name: str, words: Sequence[str]) -> bool:
    return any(word in name.lower() for word in words)


def _find_named(members: Sequence[_Member], words: Sequence[str], code: Optional[Code]) -> Optional[str]:
    """Return the member that is best named so: by the whole name, then by a word of it."""
    fitting = [each for each in members if code is None or each.type.code is code]
    for word in words:
        for each in fitting:
            if each.leaf == word:
                return each.path
    for word in words:
        for each in fitting:
            if len(word) > 2 and word in re.split(r"[_\d]", each.leaf):
                return each.path
    return None


def _find_key(node: Type) -> Optional[_Member]:
    kinds = (Code.POINTER, Code.INTEGER, Code.ARRAY)
    members = [each for each in _members(node, "", 0) if each.type.code in kinds]
    named = [each for word in _KEY for each in members if each.leaf == word]
    return next(iter(named), None)


def _is_text(type: Type) -> bool:
    target = type.target
    return (
        type.code is Code.POINTER and target is not None and target.code is Code.INTEGER and target.size == 1
    )


def _shape_name(type: Type) -> str:
    return re.sub(r"[^a-z0-9]+", "-", bare_name(type.tag).lower()).strip("-") or "unnamed"


__all__ = ["Guess", "Link", "find_heads", "find_links", "guess"]
