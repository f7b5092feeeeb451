"""Integer expressions of shapes: parsed once, evaluated on numbers or on whole columns.

The text is Python's grammar, of which only integer arithmetic, comparisons and ``A if C else B`` are let
through; nothing of it is run as Python. Results are modulo 2**64.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from typing import Any, Callable, Collection, FrozenSet, Mapping, Union

import numpy as np
import numpy.typing as npt

from gdbext.errors import ShapeError

U64 = npt.NDArray[np.uint64]
Value = Union[int, U64]

_MASK = (1 << 64) - 1
_LONGEST = 500
_LONGEST_SHOWN = 80
_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_COMPARISONS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def shown(value: object) -> str:
    """Return a value as an error quotes it: its ``repr``, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"


class Expression:
    """One expression.

    :param text: as it was written.
    :param names: the names that it uses.
    """

    def __init__(self, text: str, tree: ast.expr) -> None:
        self.text = text
        self._tree = tree
        self.names: FrozenSet[str] = frozenset(
            node.id for node in ast.walk(tree) if isinstance(node, ast.Name)
        )

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __call__(self, values: Mapping[str, Value]) -> Value:
        """Return the value: an array where one of ``values`` that it uses is one.

        :raises ShapeError: for a division by zero.
        """
        return _evaluate(self._tree, values, self.text)

    def number(self, values: Mapping[str, int]) -> int:
        """Return the value of an expression over plain numbers; errors as calling it."""
        value = self(values)
        assert isinstance(value, int)
        return value


def parse_expression(text: str, names: Collection[str]) -> Expression:
    """Take an expression apart.

    :param names: all that it may use.
    :raises ShapeError: when it is none, or uses another name.
    """
    try:
        if len(text) > _LONGEST:
            raise ShapeError(f"an expression of {len(text)} characters is too long")
        tree = _parse(re.sub(r"(?<![\w.])0+(?=[1-9])", "", text.strip()))
        _check(tree, text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ShapeError(f"{shown(text)} is not an expression") from None
    expression = Expression(text.strip(), tree)
    unknown = sorted(expression.names - set(names))
    if unknown:
        known = ", ".join(sorted(names)) or "none"
        raise ShapeError(f"{shown(text)} uses {unknown[0]!r}, which is not defined", f"the names are {known}")
    return expression


def _parse(text: str) -> ast.expr:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python tells on standard error what it thinks of `2else`
        return ast.parse(text, mode="eval").body


def _check(node: ast.expr, text: str) -> None:
    parts = _parts(node)
    if parts is None:
        raise ShapeError(
            f"{shown(text)} is not an integer expression: {shown(ast.unparse(node))} is not let through"
        )
    for part in parts:
        _check(part, text)


def _parts(node: ast.expr) -> "list[ast.expr] | None":
    """Return the operands of a node, or None when it is not let through."""
    if isinstance(node, ast.Name):
        return []
    if isinstance(node, ast.Constant):
        return [] if type(node.value) is int and node.value <= _MASK else None
    if isinstance(node, ast.BinOp):
        shifting = isinstance(node.op, (ast.LShift, ast.RShift, ast.Div, ast.FloorDiv, ast.Mod))
        return [node.left, node.right] if shifting or type(node.op) in _OPERATORS else None
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.BoolOp):
        return list(node.values)
    if isinstance(node, ast.Compare):
        plain = len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS
        return [node.left, node.comparators[0]] if plain else None
    if isinstance(node, ast.IfExp):
        return [node.test, node.body, node.orelse]
    return None


def _evaluate(node: ast.expr, values: Mapping[str, Value], text: str) -> Value:
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, int)
        return node.value
    if isinstance(node, ast.Name):
        return _unsigned(values[node.id])
    if isinstance(node, ast.IfExp):
        return _evaluate_choice(node, values, text)
    if isinstance(node, ast.BoolOp):
        return _evaluate_junction(node, values, text)
    return _combine(node, [_evaluate(part, values, text) for part in _parts(node) or ()], text)


def _evaluate_choice(node: ast.IfExp, values: Mapping[str, Value], text: str) -> Value:
    """As in C, what is not chosen is not evaluated; of columns both sides are."""
    test = _evaluate(node.test, values, text)
    if isinstance(test, int):
        return _evaluate(node.body if test else node.orelse, values, text)
    chosen, other = (_evaluate(part, values, text) for part in (node.body, node.orelse))
    return np.where(test != 0, _array(chosen), _array(other))


def _evaluate_junction(node: ast.BoolOp, values: Mapping[str, Value], text: str) -> Value:
    """As in C, a number that decides ends it."""
    both = isinstance(node.op, ast.And)
    result: Value = int(both)
    for part in node.values:
        truth = _unsigned(_paired(operator.ne, _evaluate(part, values, text), 0))
        result = _paired(operator.and_ if both else operator.or_, result, truth)
        if isinstance(result, int) and bool(result) is not both:
            return result
    return result


def _combine(node: ast.expr, operands: "list[Value]", text: str) -> Value:
    if isinstance(node, ast.BinOp):
        return _binary(node.op, operands[0], operands[1], text)
    if isinstance(node, ast.UnaryOp):
        return _unary(node.op, operands[0])
    assert isinstance(node, ast.Compare)
    return _unsigned(_paired(_COMPARISONS[type(node.ops[0])], operands[0], operands[1]))


def _binary(op: ast.operator, left: Value, right: Value, text: str) -> Value:
    if type(op) in _OPERATORS:
        return _unsigned(_paired(_OPERATORS[type(op)], left, right))
    if isinstance(op, (ast.LShift, ast.RShift)):
        return _shift(isinstance(op, ast.LShift), left, right)
    if np.any(np.equal(right, 0)):
        raise ShapeError(f"{text!r} divides by zero")
    whole = operator.mod if isinstance(op, ast.Mod) else operator.floordiv
    return _unsigned(_paired(whole, left, right))


def _shift(left_wards: bool, value: Value, by: Value) -> Value:
    if isinstance(value, int) and isinstance(by, int):
        if by > 63:
            return 0
        return (value << by) & _MASK if left_wards else value >> by
    one, other = _array(value), _array(by)
    moved = np.left_shift(one, other) if left_wards else np.right_shift(one, other)
    zeroed: U64 = np.where(other > np.uint64(63), np.uint64(0), moved)
    return zeroed


def _unary(op: ast.unaryop, value: Value) -> Value:
    if isinstance(op, ast.Not):
        return _unsigned(_paired(operator.eq, value, 0))
    if isinstance(op, ast.Invert):
        return _unsigned(_paired(operator.xor, value, _MASK))
    if isinstance(op, ast.USub):
        return _unsigned(_paired(operator.sub, 0, value))
    return value


def _paired(function: Callable[[Any, Any], Any], left: Value, right: Value) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        return function(left, right)
    with np.errstate(over="ignore"):
        return function(_array(left), _array(right))


def _array(value: Value) -> U64:
    return np.asarray(value & _MASK if isinstance(value, int) else value, dtype=np.uint64)


def _unsigned(value: Any) -> Value:
    if isinstance(value, (bool, int)):
        return int(value) & _MASK
    array: U64 = np.asarray(value).astype(np.uint64, copy=False)
    return array
