"""Types flattened: where an object has pointers, and what they lead to; containers of libstdc++ among them.

Upstream of the containers: GCC 12.2, libstdc++-v3/include/bits/{stl_vector,stl_list,stl_tree,hashtable,
hashtable_policy,forward_list,basic_string,shared_ptr_base}.h and ext/aligned_buffer.h.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Callable, Dict, FrozenSet, Iterator, List, Optional, Tuple

from gdbext.analysis.types.languages.names import find_template, readable, template_arguments
from gdbext.analysis.types.model import CONTAINER, DEBUG_INFO
from gdbext.layout.types import Code, Field, Type

# What a pointer in an object leads to.
OBJECT, NODE, BUCKETS, RANGE, STRING = ("object", "node", "buckets", "range", "string")

MOST_LINKS = 256  # of one type: what has more is an array of structures, whose first elements serve
MOST_POINTERS = 1 << 20  # of one array in a structure
_ELEMENTS = 64  # of an array of structures in a structure
_MOST_MEMBERS = 1 << 16  # that are looked at for one type
_DEPTH = 24

_CONTAINERS = re.compile(
    r"std::(?:__cxx11::|__debug::)?(list|forward_list|map|set|multimap|multiset"
    r"|unordered_map|unordered_set|unordered_multimap|unordered_multiset)<"
)
_VECTOR = re.compile(r"std::(?:__debug::)?vector<")
_STRING_TYPE = re.compile(r"std::__cxx11::basic_string<char,")
_NODES = ("std::_Rb_tree_node<", "std::_List_node<", "std::__detail::_Hash_node<", "std::_Fwd_list_node<")
_BASE_NODES = re.compile(r"(?:struct )?std::(__detail::)?_(Rb_tree|List|Hash|Fwd_list)_node_base$")
_BUFFERS = re.compile(r"(?:__gnu_cxx::__aligned_(?:membuf|buffer)|std::aligned_storage)<")

_BEHIND = ("_M_last", "_M_finish", "_M_end_of_storage")

FindType = Callable[[str], Optional[Type]]


@dataclass(frozen=True)
class Link:
    """Pointers of an object.

    :param kind: :data:`OBJECT` to one or an array; :data:`NODE` to a container's node, or back to the container;
        :data:`BUCKETS` to a hash table's bins; :data:`RANGE` three words: begin, end, end of storage;
        :data:`STRING` pointer, length, and the bytes themselves or the capacity.
    :param offset: bytes from the object's start.
    :param target: what is pointed to; of RANGE the element; None where it does not matter.
    :param label: the container that it belongs to, as reports name it; "" for none.
    :param count: pointers, one after the other.
    :param sure: False in a union: it may be another member that is in use.
    """

    kind: str
    offset: int
    target: Optional[Type] = None
    label: str = ""
    count: int = 1
    sure: bool = True


class Layout:
    """One type, as far as it matters here.

    :param name: as reports print it.
    :param size: bytes.
    :param flexible: whether an array without a bound ends it.
    """

    def __init__(self, name: str, size: int, kind: str, flexible: bool, links: Callable[[], "list[Link]"]) -> None:
        self.name = name
        self.size = size
        self.kind = kind
        self.flexible = flexible
        self.starts: FrozenSet[str] = frozenset()
        self.is_pointer = False
        self.is_record = False
        self._links = links

    def __repr__(self) -> str:
        return f"Layout({self.name!r}, {self.size})"

    @cached_property
    def links(self) -> "list[Link]":
        """Its pointers by offset."""
        return sorted(self._links(), key=lambda link: link.offset)

    @cached_property
    def only_links(self) -> bool:
        """Whether it is nothing but pointers to its own type: the link inside something else."""
        own = [link.count for link in self.links if link.target is not None and link.target.size == self.size]
        return bool(own) and self.kind == DEBUG_INFO and sum(own) == len(self.links) and not self._has_more

    @property
    def _has_more(self) -> bool:
        return self.is_pointer or self.size > 2 * 8 or len(self.links) * 8 < self.size


_Node = Tuple[Optional[Type], str]


class Layouts:
    """The layouts of a target's types, each made once.

    :param find_type: finds types by name.
    :param word: bytes of a pointer.
    :param tagged: whether structures are called ``struct NAME``, as in C.
    """

    def __init__(self, find_type: FindType, word: int, tagged: bool) -> None:
        self._find_type = find_type
        self._word = word
        self._tagged = tagged
        self._known: Dict[Tuple[str, int, str], Optional[Layout]] = {}
        self._left = 0  # members that may still be looked at, of the type that is being flattened

    def name_of(self, type: Type) -> str:
        """Return a type's name as reports print it."""
        name = readable(type.tag)
        return name if self._tagged else re.sub(r"^(struct|union|class) ", "", name)

    def of(self, type: Type, label: str = "") -> Optional[Layout]:
        """Return a type's layout, or None for one that says nothing (void, characters, functions, incomplete).

        :param label: of the container whose node it is.
        """
        key = (type.tag, type.size, label)
        if key not in self._known:
            self._known[key] = self._make(type, label)
        return self._known[key]

    def find(self, name: str) -> Optional[Layout]:
        """Return the layout of the type of that name, or None."""
        type = self._find_type(name)
        return None if type is None else self.of(type)

    def _make(self, type: Type, label: str) -> Optional[Layout]:
        if type.code is Code.POINTER:
            return self._pointer(type)
        if type.is_record and type.size:
            return self._record(type, label)
        if type.code in (Code.INTEGER, Code.FLOAT) and type.size > 1:
            return Layout(self.name_of(type), type.size, DEBUG_INFO, False, list)
        return None

    def _pointer(self, type: Type) -> Optional[Layout]:
        target = type.target
        if target is not None and (target.code is Code.FUNCTION or _BASE_NODES.match(target.tag)):
            return None
        name = "void *" if target is None else self._pointer_name(target)
        layout = Layout(name, self._word, DEBUG_INFO, False, lambda: list(self._of_pointer(type, 0, _NO_NODE, True, 1)))
        layout.is_pointer = True
        return layout

    def _pointer_name(self, target: Type) -> str:
        name = self.name_of(target)
        return f"{name}*" if name.endswith("*") else f"{name} *"

    def _record(self, type: Type, label: str) -> Layout:
        own: _Node = (type, label) if label else self._own_node(type)
        name = f"{own[1]} node" if own[1] else self.name_of(type)
        kind = CONTAINER if own[1] else DEBUG_INFO
        layout = Layout(name, type.size, kind, _is_flexible(type), lambda: self._links_of(type, own))
        layout.starts = frozenset(self.name_of(one) for one in _first_members(type))
        layout.is_record = True
        return layout

    def _links_of(self, type: Type, node: _Node) -> List[Link]:
        self._left = _MOST_MEMBERS
        return list(islice(self._flatten(type, 0, node, True, 0), MOST_LINKS))

    def _own_node(self, type: Type) -> _Node:
        for name in _NODES:
            if type.tag.startswith(name):
                return type, readable(type.tag)
        return _NO_NODE

    def _flatten(self, type: Type, base: int, node: _Node, sure: bool, depth: int) -> Iterator[Link]:
        self._left -= 1
        if depth > _DEPTH or self._left < 0:
            return
        if _STRING_TYPE.match(type.tag) and type.is_record:
            yield Link(STRING, base, None, "std::string", 1, sure)
        elif type.is_record:
            yield from self._members(type, base, node, sure and type.code is not Code.UNION, depth)
        elif type.code is Code.ARRAY:
            yield from self._array(type, base, node, sure, depth)
        elif type.code is Code.POINTER:
            yield from self._of_pointer(type, base, node, sure, 1)

    def _members(self, type: Type, base: int, node: _Node, sure: bool, depth: int) -> Iterator[Link]:
        if _VECTOR.match(type.tag):
            found = list(self._vector(type, base, sure))
            yield from found
            return
        if _CONTAINERS.match(type.tag):
            node = self._node_of(type)
        if _BUFFERS.match(type.tag):
            inner = self._find_type((template_arguments(type.tag) or [""])[0])
            if inner is not None and inner.size <= type.size:
                yield from self._flatten(inner, base, _NO_NODE, sure, depth + 1)
            return
        for field in type.fields:
            if field.bits is None and not _leads_astray(type, field):
                yield from self._field(field, base, node, sure, depth)

    def _field(self, field: Field, base: int, node: _Node, sure: bool, depth: int) -> Iterator[Link]:
        if field.name == "_M_buckets" and node[1]:
            yield Link(BUCKETS, base + field.offset, None, node[1], 1, sure)
        elif field.name != "_M_single_bucket":
            yield from self._flatten(field.type, base + field.offset, node, sure, depth + 1)

    def _vector(self, type: Type, base: int, sure: bool) -> Iterator[Link]:
        start = _find_member(type, "_M_start", 0)
        if start is not None and start.type.code is Code.POINTER and start.type.target is not None:
            yield Link(RANGE, base + start.offset, start.type.target, readable(type.tag), 1, sure)

    def _node_of(self, type: Type) -> _Node:
        """Return a container's node, which its bases name, and the container's own name."""
        for name in _names_within(type, 0):
            for wanted in _NODES:
                found = find_template(name, wanted)
                if found is not None:
                    return self._find_type(found), readable(type.tag)
        return None, readable(type.tag)

    def _array(self, type: Type, base: int, node: _Node, sure: bool, depth: int) -> Iterator[Link]:
        element, length = type.target, type.length or 0
        if element is None or not element.size:
            return
        if element.code is Code.POINTER:
            yield from self._of_pointer(element, base, node, sure, min(length, MOST_POINTERS))
        elif element.is_record or element.code is Code.ARRAY:
            for at in range(min(length, _ELEMENTS)):
                yield from self._flatten(element, base + at * element.size, node, sure, depth + 1)

    def _of_pointer(self, type: Type, base: int, node: _Node, sure: bool, count: int) -> Iterator[Link]:
        target = type.target
        if target is None or not count:
            return
        if _BASE_NODES.match(target.tag):
            if node[0] is not None:
                yield Link(NODE, base, node[0], node[1], count, sure)
        elif target.code is not Code.FUNCTION:
            yield Link(OBJECT, base, target, "", count, sure)


_NO_NODE: _Node = (None, "")


def _leads_astray(owner: Type, field: Field) -> bool:
    """Return whether a member is no pointer to an object: to a virtual table, or behind the end of an array.

    Where blocks stand one behind the other, that is the next block.
    """
    if field.type.code is not Code.POINTER:
        return False
    return field.name.startswith("_vptr") or (owner.tag.startswith("std::") and field.name in _BEHIND)


def _is_flexible(type: Type) -> bool:
    last: Optional[Type] = type
    for _ in range(_DEPTH):
        if last is None or last.code is not Code.STRUCT:
            break
        last = last.fields[-1].type if last.fields else None
    return last is not None and last.code is Code.ARRAY and (last.length or 0) <= 1


def _first_members(type: Type) -> List[Type]:
    """Return what an object begins with: first bases and members, and theirs."""
    found: List[Type] = []
    todo = [type]
    while todo and len(found) < _DEPTH:
        for field in todo.pop().fields:
            if field.offset == 0 and field.type.is_record and field.bits is None:
                found.append(field.type)
                todo.append(field.type)
    return found


def _find_member(type: Type, name: str, base: int, depth: int = 0) -> Optional[Field]:
    """Return a member of a structure or of the structures in it, at any depth, or None."""
    for field in type.fields:
        if field.name == name:
            return Field(name, base + field.offset, field.type)
        if field.type.is_record and depth < _DEPTH:
            inner = _find_member(field.type, name, base + field.offset, depth + 1)
            if inner is not None:
                return inner
    return None


def _names_within(type: Type, depth: int) -> Iterator[str]:
    for field in type.fields:
        yield field.type.tag
        if field.type.is_record and depth < _DEPTH:
            yield from _names_within(field.type, depth + 1)
