"""Shapes with the names replaced by offsets, by the types of one program.

A bound shape has no name of a member left in it. It is opened on any number of objects (``opening.py``) and
can be saved in offsets (``saving.py``). Types come from the program first; where it has none, the shape's own
``[[struct]]`` declarations stand in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Mapping, Optional, Sequence, Union

from gdbext.abi import Abi
from gdbext.debuginfo import Types
from gdbext.errors import ShapeError
from gdbext.layout.types import Code, Type
from gdbext.structures.shapes.declared import Layered, declare_types
from gdbext.structures.shapes.expressions import Expression
from gdbext.structures.shapes.library import Library
from gdbext.structures.shapes.paths import BoundPath, GlobalRoot, Path, for_each_ending, parse_path
from gdbext.structures.shapes.shape import (
    BinsPart,
    ListPart,
    LruPart,
    Paths,
    Quantity,
    Shape,
    SlotFieldPart,
)
from gdbext.structures.walk.model import NUMBER_SIZES, Links, Scalar

Amount = Union[int, Expression, BoundPath]  # a number that is known, computed over the lets, or read


@dataclass(frozen=True)
class Place:
    """Where something stands: at the end of a path, or where a pointer there leads to.

    :param embedded: at the path's end itself.
    :param amount: an expression that gives the address, instead of the path.
    """

    path: Optional[BoundPath]
    embedded: bool = False
    amount: Optional[Expression] = None


@dataclass(frozen=True)
class BoundNode:
    """``[node]`` and ``[link]``.

    :param mangled: what to try, in order; ``links`` has the first.
    :param element: bytes from the element's start to the node.
    :param content: bytes from the node's start to the element, where that is the way round.
    :param type: name of the element's type, or None.
    :param node_type: the node's own, where it is known.
    """

    links: Links
    mangled: tuple[bool, ...] = (False,)
    hash: Optional[Scalar] = None
    key: Optional[Scalar] = None
    key_is: str = "pointer"
    key_size: Amount = 0
    element: Amount = 0
    type: Optional[str] = None
    node_type: Optional[Type] = field(default=None, compare=False)
    content: Amount = 0
    key_length: Optional[Scalar] = None


@dataclass(frozen=True)
class BoundHead:
    """``[list]``.

    :param first: the link that holds the first node; None: the object is itself the first node.
    :param stop: the node that ends a circular list; None: the object itself.
    """

    first: Optional[BoundPath]
    end: str
    stop: Optional[Place]
    last: Optional[BoundPath]
    last_is_link: bool
    entries: Optional[Amount]


@dataclass(frozen=True)
class BoundList:
    """A list."""

    head: BoundHead
    node: BoundNode


@dataclass(frozen=True)
class BoundArray:
    """One ``[[bins]]``.

    :param head: bytes from a bin's start to its head link; ``stop`` likewise to the node that ends a circular chain.
    """

    array: Place
    count: Amount
    stride: Amount
    head: int
    length: Optional[Scalar]
    bin_of: Optional[Expression]
    segment: Amount
    when: Optional[Expression]
    stop: Optional[int] = None


@dataclass(frozen=True)
class BoundBins:
    """A chained table; see ``model.Table``.

    :param lru_node: how the second list's links lead on.
    """

    arrays: tuple[BoundArray, ...]
    node: BoundNode
    end: str
    list_first: Optional[BoundPath]
    entries: Optional[Amount]
    rehashing: Optional[Expression]
    lock: Optional[BoundPath]
    bin_lock: Optional[int]
    lru: Optional[BoundHead]
    lru_node: Optional[BoundNode]


@dataclass(frozen=True)
class BoundGroup:
    """A group of tables.

    :param indirect: the array holds pointers to them.
    """

    array: Place
    count: Amount
    indirect: bool
    stride: Amount
    slab_of: Optional[Expression]
    member: "BoundShape"


@dataclass(frozen=True)
class BoundSlotField:
    """One ``[probe.fields.NAME]``."""

    array: Place
    stride: Amount
    at: Amount
    size: Amount
    signed: bool
    bits: Optional[tuple[int, int]]
    per: Amount


@dataclass(frozen=True)
class BoundProbe:
    """An open-addressing table; see ``model.ProbeTable``."""

    slots: Amount
    fields: Mapping[str, BoundSlotField]
    occupied: Expression
    home: Optional[Expression]
    distance: Optional[Expression]
    step: str
    hash: Optional[str]
    key: Optional[str]
    entries: Optional[Amount]
    element_type: Optional[str]


@dataclass(frozen=True)
class BoundTree:
    """A binary tree; see ``model.TreeRoot``."""

    root: BoundPath
    left: int
    right: int
    parent: Optional[int]
    header: Optional[Place]
    leftmost: Optional[BoundPath]
    rightmost: Optional[BoundPath]
    sentinel: Optional[Amount]
    mask: int
    alignment: int
    entries: Optional[Amount]
    element: Amount
    element_type: Optional[str]
    content: Amount = 0


BoundPart = Union[BoundList, BoundBins, BoundGroup, BoundProbe, BoundTree]


@dataclass(frozen=True)
class BoundShape:
    """A shape in offsets.

    :param type: of the objects that it fits; None where nothing declares one.
    :param lets: what expressions may use besides ``word``.
    :param types_from: ``debug info``, ``declarations`` (the shape's own) or ``offsets`` (none were needed).
    """

    shape: Shape
    abi: Abi
    type: Optional[Type]
    lets: Mapping[str, BoundPath]
    part: BoundPart
    types_from: str
    valid: Optional[Expression] = field(default=None)

    @property
    def name(self) -> str:
        """The shape's."""
        return self.shape.name


def bind(shape: Shape, type: Optional[Type], types: Types, library: Library, abi: Abi) -> BoundShape:
    """Replace the names in a shape by offsets.

    :param type: of the object; None is good enough for a shape in offsets, and for one that declares the type.
    :param library: where a group's ``of`` is looked up.
    :param abi: of the program, for declared types and the size of a word.
    :raises ShapeError: naming shape, key and the member that is missing.
    """
    try:
        return _Binder(shape, type, types, library, abi).bind()
    except ShapeError as error:
        raise ShapeError(f"shape {shape.name}: {error.message}", error.hint) from None


class _Binder:
    """One shape being bound."""

    def __init__(self, shape: Shape, type: Optional[Type], types: Types, library: Library, abi: Abi) -> None:
        self.shape = shape
        self.library = library
        self.abi = abi
        self.debug: Types = types
        self.declared = declare_types(shape.structs, abi)
        self.types: Types = Layered(types, self.declared)
        self.type = self._complete(type) if type is not None else self._declared_type()
        self.named = False  # whether any type was needed

    def bind(self) -> BoundShape:
        shape = self.shape
        lets = {name: self._number_path(f"let.{name}", paths) for name, paths in shape.lets.items()}
        part = getattr(self, f"_bind_{shape.kind}")()
        return BoundShape(shape, self.abi, self.type, lets, part, self._types_from(), shape.valid)

    def _types_from(self) -> str:
        if not self.named:
            return "offsets"
        mine = self.type is not None and self.declared.find_type(self.type.tag) is self.type
        return "declarations" if mine else "debug info"

    # -- the kinds

    def _bind_list(self) -> BoundList:
        part = self.shape.list
        assert part is not None
        head, node_type = self._head("list", part)
        return BoundList(head, self._node(node_type))

    def _bind_bins(self) -> BoundBins:
        shape, table = self.shape, self.shape.table
        arrays, bin_type, node_type = [], None, None
        for at, part in enumerate(shape.bins):
            array, this_bin, this_node = self._array(part)
            arrays.append(array)
            if at == 0:
                bin_type, node_type = this_bin, this_node
        node = self._node(node_type)
        lru = self._lru(shape.lru, node_type, node) if shape.lru else (None, None)
        return BoundBins(
            tuple(arrays),
            node,
            table.end,
            self._find_path("table.list_first", table.list_first),
            self._find_amount("table.entries", table.entries),
            table.rehashing,
            self._find_path("table.lock", table.lock),
            self._offset("table.bin_lock", table.bin_lock, bin_type) if table.bin_lock else None,
            *lru,
        )

    def _bind_group(self) -> BoundGroup:
        part = self.shape.group
        assert part is not None
        array = self._path("group.array", part.array, self.type)
        place, item = self._place("group.array", array), _item(array)
        member_type = item.target if part.indirect and item else item
        return BoundGroup(
            place,
            self._amount("group.count", part.count),
            part.indirect,
            self._stride("group.stride", part.stride, None if part.indirect else item, part.indirect),
            part.slab_of,
            self._member(part.of, member_type),
        )

    def _bind_probe(self) -> BoundProbe:
        part = self.shape.probe
        assert part is not None
        return BoundProbe(
            self._amount("probe.slots", part.slots),
            {name: self._slot_field(f"probe.fields.{name}", row) for name, row in part.fields.items()},
            part.occupied,
            part.home,
            part.distance,
            part.step,
            part.hash,
            part.key,
            self._find_amount("probe.entries", part.entries),
            self._named(part.element_type),
        )

    def _bind_tree(self) -> BoundTree:
        part = self.shape.tree
        assert part is not None
        root = self._pointer("tree.root", part.root, self.type)
        node = self._node_type(part.node_type, root.type.target if root.type else None)
        header = self._path("tree.header", part.header, self.type) if part.header else None
        element, element_type = self._element("tree", part.element, part.element_type)
        return BoundTree(
            root,
            self._offset("tree.left", part.left, node),
            self._offset("tree.right", part.right, node),
            self._offset("tree.parent", part.parent, node) if part.parent else None,
            self._place("tree.header", header) if header else None,
            self._find_path("tree.leftmost", part.leftmost),
            self._find_path("tree.rightmost", part.rightmost),
            self._find_amount("tree.sentinel", part.sentinel),
            part.mask,
            self.abi.pointer_size,
            self._find_amount("tree.entries", part.entries),
            element,
            element_type or (node.name if node else None),
            self._content("tree", part.content, node),
        )

    # -- their parts

    def _head(self, key: str, part: ListPart) -> "tuple[BoundHead, Optional[Type]]":
        stop = self._path(f"{key}.stop", part.stop, self.type) if part.stop else None
        first, node_type = None, self.type
        if not part.is_node:
            first = self._pointer(f"{key}.first", part.first, self.type)
            node_type = first.type.target if first.type else None
        elif part.end == "head" and stop is None:
            raise ShapeError(f"{key}.first is self, so end cannot be head", "name the link, as in next")
        head = BoundHead(
            first,
            part.end,
            self._place(f"{key}.stop", stop) if stop else None,
            self._find_path(f"{key}.last", part.last),
            part.last_is == "link",
            self._find_amount(f"{key}.entries", part.entries),
        )
        return head, node_type

    def _array(self, part: BinsPart) -> "tuple[BoundArray, Optional[Type], Optional[Type]]":
        path = self._path("bins.array", part.array, self.type)
        place, item = self._place("bins.array", path), _item(path)
        bin_type = self._complete(item.target if part.segment and item else item)
        head, node_type = self._bin_head(part, bin_type)
        array = BoundArray(
            place,
            self._count(part, path),
            self._stride("bins.stride", part.stride, bin_type),
            head,
            self._scalar("bins.length", part.length, bin_type) if part.length else None,
            part.bin_of,
            self._amount("bins.segment", part.segment),
            part.when,
            self._offset("bins.stop", part.stop, bin_type) if part.stop else None,
        )
        return array, bin_type, node_type

    def _bin_head(self, part: BinsPart, bin_type: Optional[Type]) -> "tuple[int, Optional[Type]]":
        path = self._path("bins.head", part.head or (parse_path("self"),), bin_type)
        if len(path.offsets) != 1 or path.root is not None:
            raise ShapeError("bins.head must be in the bin itself")
        kind = path.type
        if kind is None or kind.code is Code.POINTER:
            return path.offsets[0], kind.target if kind else None
        if self.shape.table.end == "head" and kind.is_record:
            return path.offsets[0], kind
        raise ShapeError(f"bins.head: {kind.name} is no pointer", "name the link that holds the first node")

    def _count(self, part: BinsPart, path: BoundPath) -> Amount:
        if part.count is not None:
            return self._amount("bins.count", part.count)
        if path.type is not None and path.type.length:
            return path.type.length
        raise ShapeError("bins.count is missing", "only an array of known length counts itself")

    def _lru(
        self, part: LruPart, node_type: Optional[Type], node: BoundNode
    ) -> "tuple[BoundHead, BoundNode]":
        head, found = self._head("lru", part.head)
        node_type = self._node_type(self.shape.node.type, node_type or found)
        links = replace(
            node.links,
            next=self._link("lru.next", part.next, node_type),
            prev=self._link("lru.prev", part.prev, node_type) if part.prev else None,
            prev_is_link=part.prev_is == "link",
            mangled=False,
        )
        return head, replace(node, links=links, mangled=(False,))

    def _slot_field(self, key: str, part: SlotFieldPart) -> BoundSlotField:
        place, item = self._slot_array(f"{key}.array", part.array)
        at: Amount
        scalar = None
        if isinstance(part.at, tuple):
            scalar = self._scalar(f"{key}.at", part.at, item)
            at = scalar.offset
        else:
            at = part.at
        known = scalar or (Scalar(0, item.size, item.signed) if item and item.size in NUMBER_SIZES else None)
        size = self._find_amount(f"{key}.size", part.size)
        return BoundSlotField(
            place,
            self._stride(f"{key}.stride", part.stride, item),
            at,
            size if size is not None else (known.size if known else self.abi.pointer_size),
            part.signed or (size is None and bool(known and known.signed)),
            known.bits if known else None,
            self._amount(f"{key}.per", part.per),
        )

    def _slot_array(self, key: str, array: Quantity) -> "tuple[Place, Optional[Type]]":
        if isinstance(array, Expression):
            return Place(None, amount=array), None
        if isinstance(array, int):
            raise ShapeError(f"{key} must be a path or an expression over names of [let]")
        path = self._path(key, array, self.type)
        return self._place(key, path), self._complete(_item(path))

    def _member(self, name: str, type: Optional[Type]) -> BoundShape:
        shape = self.library.find_shape(name)
        if shape is None:
            raise ShapeError(f"group.of: no shape {name}", "gx shapes list")
        if shape.kind == "group":
            raise ShapeError(f"group.of: {name} is a group itself")
        return bind(shape, type, self.types, self.library, self.abi)

    def _node(self, head_type: Optional[Type]) -> BoundNode:
        part, link = self.shape.node, self.shape.link
        type = self._node_type(part.type, head_type)
        next_paths = part.next or self._found("node.find", part.find, type, None)
        prev_paths = part.prev or self._found("node.find_prev", part.find_prev, type, next_paths[0])
        links = Links(
            self._link("node.next", next_paths, type),
            self._link("node.prev", prev_paths, type) if prev_paths else None,
            part.prev_is == "link",
            **{
                name: getattr(link, name)
                for name in ("mask", "xor", "relative", "end_bits", "leaf_bits")
            },
            sentinels=tuple(value & self.abi.word_mask for value in link.sentinels),
            mangled=link.mangled[0],
            forbidden=tuple(value & self.abi.word_mask for value in link.forbidden),
            alignment=link.alignment or (self.abi.pointer_size if type else 1),
        )
        element, element_type = self._element("node", part.element, part.element_type)
        return BoundNode(
            links,
            link.mangled,
            self._scalar("node.hash", part.hash, type) if part.hash else None,
            self._key(part.key, type) if part.key else None,
            part.key_is,
            self._key_size(type),
            element,
            element_type or self._node_name(type),
            type,
            self._content("node", part.content, type),
            self._scalar("node.key_length", part.key_length, type) if part.key_length else None,
        )

    def _node_name(self, type: Optional[Type]) -> Optional[str]:
        """Return the elements' type where nothing names it: the node's, unless it stands inside something else."""
        part = self.shape.node
        if part.element:
            return None
        return type.name if type else part.type

    def _found(self, key: str, names: Sequence[str], type: Optional[Type], beside: Optional[Path]) -> Paths:
        """Return the one member path that ends in one of ``names``; ``beside``: in the same structure as this."""
        if not names or (type is None and beside is not None):
            return ()
        if type is None:
            raise ShapeError(f"{key}: the node's type is not known", "only named types can be searched")
        found = [path for name in names for path in for_each_ending(type, name)]
        if beside is not None:
            near = beside.text.rpartition(".")[0]
            return tuple(parse_path(path) for path in found if path.rpartition(".")[0] == near)[:1]
        if len(found) > 1:
            raise ShapeError(
                f"{type.name} has several members {names[0]}: {', '.join(found)}", f"--next {found[0]}"
            )
        if not found:
            raise ShapeError(f"{key}: {type.name} has no member {' or '.join(names)}")
        return (parse_path(found[0]),)

    def _link(self, key: str, paths: Paths, type: Optional[Type]) -> int:
        path = self._path(key, paths, type)
        scalar = path.find_scalar(self.abi.pointer_size)
        if scalar is None:
            raise ShapeError(f"{key} must be in the node itself")
        wide = path.form is not None and scalar.size == self.abi.pointer_size
        if (path.form is None and path.type is not None) or (path.form is not None and not wide):
            shown = path.type.name if path.type else f"{scalar.size} bytes"
            raise ShapeError(f"{key}: {shown} is no pointer")
        return scalar.offset

    def _key(self, paths: Paths, type: Optional[Type]) -> Scalar:
        """Return where the key stands; one that is no number counts from its first byte."""
        path = self._path("node.key", paths, type)
        scalar = path.find_scalar(self.abi.pointer_size)
        if scalar is None:
            raise ShapeError("node.key must be in the node itself")
        if path.form is None and path.type is not None and self.shape.node.key_is not in ("inline",):
            raise ShapeError(
                f"node.key: {path.type.name} is no number", 'key_is = "inline" compares its bytes'
            )
        return scalar

    def _key_size(self, type: Optional[Type]) -> Amount:
        part = self.shape.node
        if part.key_is == "inline" and part.key_size == 0 and part.key:
            path = self._path("node.key", part.key, type)
            return path.type.size if path.type else path.form.size if path.form else 0
        return self._amount("node.key_size", part.key_size)

    def _element(self, key: str, element: Quantity, name: Optional[str]) -> "tuple[Amount, Optional[str]]":
        """Return where in the element the node stands: a member of its type, or a number of the object."""
        expanded = self._named(name)
        type = self.types.find_type(expanded) if expanded else None
        if isinstance(element, tuple) and type is not None:
            named = tuple(path for path in element if any(step.kind == "name" for step in path.steps))
            try:
                return self._offset(f"{key}.element", named, type), type.name
            except ShapeError:
                pass  # a number of the object after all; that tells what is missing
        return self._amount(f"{key}.element", element), type.name if type else expanded

    def _content(self, key: str, content: Optional[Quantity], type: Optional[Type]) -> Amount:
        """Return where in the node the element stands: a member of the node, or a number."""
        if isinstance(content, tuple):
            return self._offset(f"{key}.content", content, type)
        return 0 if content is None else content

    # -- types

    def _declared_type(self) -> Optional[Type]:
        for name in self.shape.types:
            found = self.types.find_type(name)
            if found is not None and found.size:
                return found
        return None

    def _complete(self, type: Optional[Type]) -> Optional[Type]:
        """Return the type itself, or the complete one of its name where the program has only that."""
        if type is None or type.size or not (type.is_record or type.code is Code.OTHER):
            return type
        return self.types.find_type(type.tag) or self.types.find_type(type.name) or type

    def _named(self, name: Optional[str]) -> Optional[str]:
        """Return a type's name with ``{type}`` and ``{PATH}`` replaced; None where these are not known."""
        if name is None or "{" not in name:
            return name
        tags = {part: self._tag(part) for part in re.findall(r"\{([^{}]*)\}", name)}
        if None in tags.values():
            return None
        return re.sub(r"\{([^{}]*)\}", lambda match: str(tags[match[1]]), name)

    def _tag(self, part: str) -> Optional[str]:
        if part == "type" or self.type is None:
            return self.type.tag if self.type else None
        found = self._path("type", (parse_path(part),), self.type).type
        return found.tag if found else None

    def _node_type(self, name: Optional[str], default: Optional[Type]) -> Optional[Type]:
        expanded = self._named(name)
        named = self.types.find_type(expanded) if expanded else None
        return named or self._complete(default)

    # -- paths

    def _path(self, key: str, paths: Paths, type: Optional[Type]) -> BoundPath:
        """Return the first path that binds.

        :raises ShapeError: with what the first one lacks.
        """
        first: Optional[ShapeError] = None
        for path in paths:
            try:
                bound = path.bind(self._complete(type), self._root_type(path))
            except ShapeError as error:
                first = first or _without(path, error)
            else:
                self.named = self.named or bound.type is not None
                return bound
        reason = first or ShapeError("no path is given")
        raise ShapeError(f"{key}: {reason.message}", reason.hint)

    def _root_type(self, path: Path) -> Optional[Type]:
        if not isinstance(path.root, GlobalRoot):
            return None
        found = self.types.find_global(path.root.name)
        return found.type if found else None

    def _find_path(self, key: str, paths: Paths) -> Optional[BoundPath]:
        return self._path(key, paths, self.type) if paths else None

    def _number_path(self, key: str, paths: Paths) -> BoundPath:
        path = self._path(key, paths, self.type)
        if path.form is None and path.type is not None and not path.address:
            raise ShapeError(f"{key}: {path.type.name} is no number")
        return path

    def _pointer(self, key: str, paths: Paths, type: Optional[Type]) -> BoundPath:
        path = self._path(key, paths, type)
        if path.address or path.type is None or path.type.code is Code.POINTER:
            return path
        raise ShapeError(f"{key}: {path.type.name} is no pointer")

    def _place(self, key: str, path: BoundPath) -> Place:
        type = path.type
        if path.address or type is None or type.code is Code.POINTER:
            return Place(path, path.address)
        if type.code is Code.ARRAY or type.is_record:
            return Place(path, True)
        raise ShapeError(f"{key}: {type.name} leads nowhere", "a pointer, an array or a structure is wanted")

    def _scalar(self, key: str, paths: Paths, type: Optional[Type]) -> Scalar:
        path = self._path(key, paths, type)
        scalar = path.find_scalar(self.abi.pointer_size)
        if scalar is None:
            raise ShapeError(f"{key}: {path.text} is not in the structure itself")
        if path.form is None and path.type is not None:
            raise ShapeError(f"{key}: {path.type.name} is no number")
        return scalar

    def _offset(self, key: str, paths: Paths, type: Optional[Type]) -> int:
        path = self._path(key, paths, type)
        if path.root is not None or len(path.offsets) != 1:
            raise ShapeError(f"{key}: {path.text} is not in the structure itself")
        return path.offsets[0]

    # -- amounts

    def _amount(self, key: str, quantity: Quantity) -> Amount:
        return self._number_path(key, quantity) if isinstance(quantity, tuple) else quantity

    def _find_amount(self, key: str, quantity: Optional[Quantity]) -> Optional[Amount]:
        return None if quantity is None else self._amount(key, quantity)

    def _stride(
        self, key: str, given: Optional[Quantity], item: Optional[Type], pointers: bool = False
    ) -> Amount:
        if given is not None:
            return self._amount(key, given)
        if pointers:
            return self.abi.pointer_size
        if item is not None and item.size:
            return item.size
        hint = "without types, write bytes from one to the next; gx shapes save does, in a build with types"
        raise ShapeError(f"{key} is missing", hint)


def _item(path: BoundPath) -> Optional[Type]:
    """Return the type of what an array, or a pointer to its first item, consists of."""
    if path.type is None:
        return None
    if path.address and path.type.code is not Code.ARRAY:
        return path.type
    return path.type.target if path.type.code in (Code.ARRAY, Code.POINTER) else path.type


def _without(path: Path, error: ShapeError) -> ShapeError:
    """Return the error without the path before it, where that says no more than its end."""
    return ShapeError(
        error.message[len(path.text) + 2 :] if error.message.startswith(path.text) else error.message
    )
