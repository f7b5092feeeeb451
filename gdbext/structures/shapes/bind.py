"""Shapes with the names replaced by offsets, by the types of one program.

A bound shape has no name of a member left in it. It is opened on any number of objects (``opening.py``) and
can be saved in offsets (``saving.py``). Types come from the program first; where it has none, the shape's own
``[[struct]]`` declarations stand in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Optional, Sequence, Union

from gdbext.abi import Abi
from gdbext.debuginfo import Types
from gdbext.errors import ShapeError
from gdbext.layout.declared import declare_types
from gdbext.layout.types import Code, Located, Type
from gdbext.structures.shapes.library import Library
from gdbext.structures.shapes.notation.expressions import Expression
from gdbext.structures.shapes.notation.paths import BoundPath, Form, GlobalRoot, Path, for_each_ending, parse_path
from gdbext.structures.shapes.shape import (
    Amount,
    BinsPart,
    LinkPart,
    ListPart,
    LruPart,
    Paths,
    Quantity,
    RawShape,
    Shape,
    SlotFieldPart,
    keys_of,
)
from gdbext.structures.walk.model import NUMBER_SIZES


@dataclass(frozen=True)
class BoundShape:
    """A shape in offsets.

    :param shape: as it is written.
    :param type: of the objects that it fits; None where nothing declares one.
    :param raw: the same in offsets: paths within a node, a bin or a slot have one, numbers say their size.
    :param types_from: ``debug info``, ``declarations`` (the shape's own) or ``offsets`` (none were needed).
    :param node_type: of a list's or table's nodes, where it is known.
    :param member: of a group: the shape of its tables.
    """

    shape: Shape
    abi: Abi
    type: Optional[Type]
    raw: RawShape
    types_from: str
    node_type: Optional[Type] = field(default=None, compare=False)
    member: Optional["BoundShape"] = None

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


class Layered:
    """Types of one source, and of another where the first has none.

    :param second: asked when the first does not know a type, or knows it only as incomplete.
    """

    def __init__(self, first: Types, second: Types) -> None:
        self._first = first
        self._second = second

    def find_type(self, name: str) -> Optional[Type]:
        """Return the complete type of that name, or None."""
        found = self._first.find_type(name)
        if found is not None and found.size:
            return found
        return self._second.find_type(name) or found

    def find_global(self, name: str) -> Optional[Located]:
        """Return a variable, or None."""
        return self._first.find_global(name) or self._second.find_global(name)


class _Binder:
    """One shape being bound."""

    def __init__(self, shape: Shape, type: Optional[Type], types: Types, library: Library, abi: Abi) -> None:
        self.shape = shape
        self.library = library
        self.abi = abi
        self.declared = declare_types(shape.structs, abi)
        self.types: Types = Layered(types, self.declared)
        self.type = self._complete(type) if type is not None else self._declared_type()
        self.node_type: Optional[Type] = None
        self.member: Optional[BoundShape] = None
        self.named = False  # whether any type was needed

    def bind(self) -> BoundShape:
        shape = self.shape
        lets = {name: self._number_path(f"let.{name}", paths) for name, paths in shape.lets.items()}
        parts = getattr(self, f"_bind_{shape.kind}")()
        raw: Any = replace(shape, types=(), needs=(), structs=(), **{**parts, "lets": lets})
        return BoundShape(shape, self.abi, self.type, raw, self._types_from(), self.node_type, self.member)

    def _types_from(self) -> str:
        if not self.named:
            return "offsets"
        mine = self.type is not None and self.declared.find_type(self.type.tag) is self.type
        return "declarations" if mine else "debug info"

    def _part(self, name: str, part: Any, inner: Optional[Type] = None, **known: Any) -> Any:
        """Bind the keys that a part declares, besides those that are known.

        :param name: of the part, for errors.
        :param inner: of its node or bin, which paths that do not start at the object start at.
        """
        for key in keys_of(type(part)):
            value = getattr(part, key.name)
            if key.bind and key.name not in known and value is not None:
                known[key.name] = getattr(self, f"_{key.bind}")(f"{name}.{key.name}", value, inner)
        return replace(part, **known)

    # -- the kinds

    def _bind_list(self) -> "dict[str, Any]":
        assert self.shape.list is not None
        head, node_type = self._head("list", self.shape.list)
        return {"list": self._part("list", self.shape.list, first=head), **self._chain(node_type)}

    def _bind_bins(self) -> "dict[str, Any]":
        shape = self.shape
        rows = [self._array(part) for part in shape.bins]
        _, bin_type, node_type = rows[0]
        return {
            "bins": tuple(array for array, _, _ in rows),
            **self._chain(node_type),
            "lru": self._lru(shape.lru, node_type) if shape.lru else None,
            "table": self._part("table", shape.table, bin_type),
        }

    def _bind_group(self) -> "dict[str, Any]":
        part = self.shape.group
        assert part is not None
        array = self._place("group.array", part.array or ())
        item = _item(array)
        item_size = None if part.indirect else item
        stride = self._stride("group.stride", part.stride, item_size, part.indirect)
        self.member = self._member(part.of, item.target if part.indirect and item else item)
        return {"group": self._part("group", part, array=array, stride=stride)}

    def _bind_probe(self) -> "dict[str, Any]":
        part = self.shape.probe
        assert part is not None
        rows = {name: self._slot_field(f"probe.fields.{name}", row) for name, row in part.fields.items()}
        element_type = self._named(part.element_type)
        return {"probe": self._part("probe", part, fields=rows, element_type=element_type)}

    def _bind_tree(self) -> "dict[str, Any]":
        part = self.shape.tree
        assert part is not None
        root = self._pointer("tree.root", part.root or ())
        node = self._node_type(part.node_type, root.type.target if root.type else None)
        element, type = self._element("tree", part.element, part.element_type)
        known = {"element": element, "element_type": type or (node.name if node else None)}
        return {"tree": self._part("tree", part, node, root=root, node_type=None, **known)}

    # -- their parts

    def _head(self, key: str, part: "ListPart[Paths]") -> "tuple[Optional[BoundPath], Optional[Type]]":
        """Return the link to the first node, None where that is the object itself, and the node's type."""
        if not part.is_node:
            first = self._pointer(f"{key}.first", part.first or ())
            return first, first.type.target if first.type else None
        if part.end == "head" and part.stop is None:
            raise ShapeError(f"{key}.first is self, so end cannot be head", "name the link, as in next")
        return None, self.type

    def _chain(self, head_type: Optional[Type]) -> "dict[str, Any]":
        """Bind ``[node]`` and ``[link]``."""
        part, link = self.shape.node, self.shape.link
        type = self.node_type = self._node_type(part.type, head_type)
        next_paths = part.next or self._found("node.find", part.find, type, None)
        prev_paths = part.prev or self._found("node.find_prev", part.find_prev, type, next_paths[0])
        written = replace(part, type=None, find=(), find_prev=(), next=next_paths, prev=prev_paths or None)
        element, element_type = self._element("node", part.element, part.element_type)
        named = element_type or self._node_name(type)
        node = self._part("node", written, type, element=element, element_type=named)
        return {"node": node, "link": self._rules(link, type)}

    def _rules(self, link: LinkPart, type: Optional[Type]) -> LinkPart:
        return replace(
            link,
            sentinels=tuple(value & self.abi.word_mask for value in link.sentinels),
            forbidden=tuple(value & self.abi.word_mask for value in link.forbidden),
            alignment=link.alignment or (self.abi.pointer_size if type else 1),
        )

    def _lru(self, part: "LruPart[Paths]", node_type: Optional[Type]) -> "LruPart[BoundPath]":
        first, found = self._head("lru", part)
        node_type = self._node_type(self.shape.node.type, node_type or found)
        return self._part("lru", part, node_type, first=first)  # type: ignore[no-any-return]

    def _array(self, part: "BinsPart[Paths]") -> "tuple[BinsPart[BoundPath], Optional[Type], Optional[Type]]":
        """Bind an array of bins; return also the types of a bin and of a node."""
        array = self._place("bins.array", part.array or ())
        item = _item(array)
        bin_type = self._complete(item.target if part.segment and item else item)
        head, node_type = self._bin_head(part, bin_type)
        count, stride = self._count(part, array), self._stride("bins.stride", part.stride, bin_type)
        row = self._part("bins", part, bin_type, array=array, count=count, stride=stride, head=head)
        return row, bin_type, node_type

    def _bin_head(
        self, part: "BinsPart[Paths]", bin_type: Optional[Type]
    ) -> "tuple[BoundPath, Optional[Type]]":
        path = self._path("bins.head", part.head or (parse_path("self"),), bin_type)
        if len(path.offsets) != 1 or path.root is not None:
            raise ShapeError("bins.head must be in the bin itself")
        kind = path.type
        if kind is None or kind.code is Code.POINTER:
            return _within(path), kind.target if kind else None
        if self.shape.table.end == "head" and kind.is_record:
            return _within(path), kind
        raise ShapeError(f"bins.head: {kind.name} is no pointer", "name the link that holds the first node")

    def _count(self, part: "BinsPart[Paths]", path: BoundPath) -> Amount:
        if part.count is not None:
            return self._amount("bins.count", part.count)
        if path.type is not None and path.type.length:
            return path.type.length
        raise ShapeError("bins.count is missing", "only an array of known length counts itself")

    def _slot_field(self, key: str, part: "SlotFieldPart[Paths]") -> "SlotFieldPart[BoundPath]":
        place, item = self._slot_array(f"{key}.array", part.array)
        at: "Union[Amount, Paths]" = part.at
        found = Form(item.size, item.signed) if item and item.size in NUMBER_SIZES else None
        if isinstance(at, tuple):
            path = self._scalar(f"{key}.at", at, item)
            at, found = path.offset, path.form
        form = found or Form(self.abi.pointer_size)
        size = None if part.size is None else self._amount(f"{key}.size", part.size)
        signed = part.signed or (size is None and form.signed)
        if form.bits is None:
            size = form.size if size is None else size
        elif isinstance(at, int):
            at = BoundPath((at,), Form(size if isinstance(size, int) else form.size, signed, form.bits))
            size = None if isinstance(size, int) else size
        return SlotFieldPart(
            array=place,
            stride=self._stride(f"{key}.stride", part.stride, item),
            at=at,
            size=size,
            signed=signed,
            per=self._amount(f"{key}.per", part.per or 1),
        )

    def _slot_array(self, key: str, array: "Optional[Quantity[Paths]]") -> "tuple[Amount, Optional[Type]]":
        if isinstance(array, Expression):
            return array, None
        if not isinstance(array, tuple):
            raise ShapeError(f"{key} must be a path or an expression over names of [let]")
        place = self._place(key, array)
        return place, self._complete(_item(place))

    def _member(self, name: str, type: Optional[Type]) -> BoundShape:
        shape = self.library.find_shape(name)
        if shape is None:
            raise ShapeError(f"group.of: no shape {name}", "gx shapes list")
        if shape.kind == "group":
            raise ShapeError(f"group.of: {name} is a group itself")
        return bind(shape, type, self.types, self.library, self.abi)

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

    def _link(self, key: str, paths: Paths, type: Optional[Type]) -> BoundPath:
        path = self._path(key, paths, type)
        scalar = path.find_scalar(self.abi.pointer_size)
        if scalar is None:
            raise ShapeError(f"{key} must be in the node itself")
        wide = path.form is not None and scalar.size == self.abi.pointer_size
        if (path.form is None and path.type is not None) or (path.form is not None and not wide):
            shown = path.type.name if path.type else f"{scalar.size} bytes"
            raise ShapeError(f"{key}: {shown} is no pointer")
        return _within(path)

    def _node_key(self, key: str, paths: Paths, type: Optional[Type]) -> BoundPath:
        """Return where the key stands; one that is no number counts from its first byte."""
        path = self._path(key, paths, type)
        if path.find_scalar(self.abi.pointer_size) is None:
            raise ShapeError("node.key must be in the node itself")
        if path.form is None and path.type is not None and self.shape.node.key_is not in ("inline",):
            raise ShapeError(
                f"node.key: {path.type.name} is no number", 'key_is = "inline" compares its bytes'
            )
        return _within(path, path.form or Form(self.abi.pointer_size))

    def _key_size(self, key: str, size: "Quantity[Paths]", type: Optional[Type]) -> Amount:
        part = self.shape.node
        if part.key_is == "inline" and size == 0 and part.key:
            path = self._path("node.key", part.key, type)
            return path.type.size if path.type else path.form.size if path.form else 0
        return self._amount(key, size)

    def _element(
        self, key: str, element: "Quantity[Paths]", name: Optional[str]
    ) -> "tuple[Amount, Optional[str]]":
        """Return where in the element the node stands: a member of its type, or a number of the object."""
        expanded = self._named(name)
        type = self.types.find_type(expanded) if expanded else None
        if isinstance(element, tuple) and type is not None:
            named = tuple(path for path in element if any(step.kind == "name" for step in path.steps))
            try:
                return self._offset(f"{key}.element", named, type).offset, type.name
            except ShapeError:
                pass  # a number of the object after all; that tells what is missing
        return self._amount(f"{key}.element", element), type.name if type else expanded

    def _content(self, key: str, content: "Quantity[Paths]", type: Optional[Type]) -> Amount:
        """Return where in the node the element stands: a member of the node, or a number."""
        return self._offset(key, content, type).offset if isinstance(content, tuple) else content

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

    def _object_path(self, key: str, paths: Paths, inner: Optional[Type] = None) -> BoundPath:
        return self._path(key, paths, self.type)

    def _number_path(self, key: str, paths: Paths) -> BoundPath:
        path = self._path(key, paths, self.type)
        if path.form is None and path.type is not None and not path.address:
            raise ShapeError(f"{key}: {path.type.name} is no number")
        return path

    def _pointer(self, key: str, paths: Paths, inner: Optional[Type] = None) -> BoundPath:
        path = self._path(key, paths, self.type)
        if path.address or path.type is None or path.type.code is Code.POINTER:
            return path
        raise ShapeError(f"{key}: {path.type.name} is no pointer")

    def _place(self, key: str, paths: Paths, inner: Optional[Type] = None) -> BoundPath:
        """Return a path that is read as the address of what stands there, or of what a pointer there leads to."""
        path = self._path(key, paths, self.type)
        type = path.type
        if path.address or (type is not None and (type.code is Code.ARRAY or type.is_record)):
            return replace(path, address=True, form=None)
        if type is None or type.code is Code.POINTER:
            return path
        raise ShapeError(f"{key}: {type.name} leads nowhere", "a pointer, an array or a structure is wanted")

    def _scalar(self, key: str, paths: Paths, type: Optional[Type]) -> BoundPath:
        path = self._path(key, paths, type)
        if path.find_scalar(self.abi.pointer_size) is None:
            raise ShapeError(f"{key}: {path.text} is not in the structure itself")
        if path.form is None and path.type is not None:
            raise ShapeError(f"{key}: {path.type.name} is no number")
        return _within(path, path.form or Form(self.abi.pointer_size))

    def _offset(self, key: str, paths: Paths, type: Optional[Type]) -> BoundPath:
        path = self._path(key, paths, type)
        if path.root is not None or len(path.offsets) != 1:
            raise ShapeError(f"{key}: {path.text} is not in the structure itself")
        return _within(path)

    # -- amounts

    def _amount(self, key: str, quantity: "Quantity[Paths]", inner: Optional[Type] = None) -> Amount:
        return self._number_path(key, quantity) if isinstance(quantity, tuple) else quantity

    def _stride(
        self, key: str, given: "Optional[Quantity[Paths]]", item: Optional[Type], pointers: bool = False
    ) -> Amount:
        if given is not None:
            return self._amount(key, given)
        if pointers:
            return self.abi.pointer_size
        if item is not None and item.size:
            return item.size
        hint = "without types, write bytes from one to the next; gx shapes save does, in a build with types"
        raise ShapeError(f"{key} is missing", hint)


def _within(path: BoundPath, form: Optional[Form] = None) -> BoundPath:
    """Return the place of a path within its structure, to be read as ``form`` if at all."""
    return BoundPath(path.offsets, form, type=path.type)


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
