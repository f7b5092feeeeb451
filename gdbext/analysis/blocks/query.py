"""The query language of ``blocks list --where``: text in, a checked tree out.

``size >= 4096 and state == "leaked" and type ~ "Session" and refs == 0``; see :func:`parse`. Nothing here knows where
the values of a field come from: that is ``gdbext.analysis.blocks.querycolumns``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from gdbext.analysis.blocks.querytokens import END, NUMBER, SIGN, TEXT, WORD, Token, fault, quoted, tokens
from gdbext.analysis.reach.model import STATE_NAMES
from gdbext.analysis.types.model import CONFIDENCE_NAMES
from gdbext.grammar.arguments import nearest
from gdbext.heap.model import CACHED_STATES, FREE_STATES, USED_STATES, State

DEEPEST = 50  # brackets and nots within each other


class FieldKind(Enum):
    """What a field is compared with."""

    NUMBER = "a number"
    ARENA = "a number or none"
    THREAD = "a number or a name"
    TEXT = "a text"
    STATE = "a state"
    REACH = "one of reached, possibly leaked, leaked"
    LEVEL = "one of none, low, medium, high"


FIELDS: Mapping[str, FieldKind] = {
    "size": FieldKind.NUMBER,
    "address": FieldKind.NUMBER,
    "state": FieldKind.STATE,
    "reach": FieldKind.REACH,
    "arena": FieldKind.ARENA,
    "thread": FieldKind.THREAD,
    "allocator": FieldKind.TEXT,
    "type": FieldKind.TEXT,
    "confidence": FieldKind.LEVEL,
    "refs": FieldKind.NUMBER,
}

REACH_NAMES: Mapping[str, int] = {name: state for state, name in STATE_NAMES.items()}
LEVELS: Mapping[str, int] = {name or "none": level for level, name in enumerate(CONFIDENCE_NAMES)}
STATE_GROUPS = {"used": USED_STATES, "cached": CACHED_STATES, "free": FREE_STATES}
NO_ARENA_WORD = "none"

_ORDERS = ("<", "<=", ">", ">=")
_EQUALITIES = ("==", "!=")
_SEARCHES = ("~", "!~")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_SIGNS: Mapping[FieldKind, Sequence[str]] = {
    FieldKind.NUMBER: (*_EQUALITIES, *_ORDERS),
    FieldKind.ARENA: (*_EQUALITIES, *_ORDERS),
    FieldKind.THREAD: (*_EQUALITIES, *_SEARCHES),
    FieldKind.TEXT: (*_EQUALITIES, *_SEARCHES),
    FieldKind.STATE: (*_EQUALITIES, *_SEARCHES),
    FieldKind.REACH: (*_EQUALITIES, *_SEARCHES),
    FieldKind.LEVEL: (*_EQUALITIES, *_ORDERS),
}

Value = Union[int, str]


@dataclass(frozen=True)
class Compare:
    """One comparison of a field.

    :param sign: ``==``, ``<``, ``<=``, ``>``, ``>=`` or ``~`` (a regular expression is found in it). What is negated
        is a :class:`Not` around it.
    :param values: numbers, or texts: names of states and levels in lower case, with spaces. One of them, but with
        ``==``: there it is any of them.
    """

    field: str
    sign: str
    values: Tuple[Value, ...]

    @property
    def value(self) -> Value:
        """The first, which is the only one where order counts."""
        return self.values[0]


@dataclass(frozen=True)
class Not:
    """What is true where its term is false."""

    term: "Node"


@dataclass(frozen=True)
class And:
    """What is true where all its terms are."""

    terms: Tuple["Node", ...]


@dataclass(frozen=True)
class Or:
    """What is true where any of its terms is."""

    terms: Tuple["Node", ...]


Node = Union[Compare, Not, And, Or]


def parse(text: str) -> Node:
    """Return the tree of a query.

    Terms are joined by ``and``, ``or``, ``not`` and brackets. A term compares one field: ``== != < <= > >=``, in
    chains too (``4K <= size < 1M``); ``~`` and ``!~`` search for a regular expression; ``field in (a, b)`` and
    ``field not in (a, b)``. Numbers may be 0x… and have K, M, G or T behind them; texts stand in quotes, or bare when
    they are one word.

    :raises UsageError: in one line that begins "at character N:", where it cannot be understood.
    """
    return _Parser(list(tokens(text))).whole()


def each_compare(node: Node) -> Iterator[Compare]:
    """Iterate over all comparisons in a tree."""
    if isinstance(node, Compare):
        yield node
    elif isinstance(node, Not):
        yield from each_compare(node.term)
    else:
        for term in node.terms:
            yield from each_compare(term)


def state_names() -> Mapping[str, Sequence[State]]:
    """Return every word that means block states, with the states: single ones, then the groups used, cached, free."""
    single: "dict[str, Sequence[State]]" = {state.label: (state,) for state in State}
    return {**single, **STATE_GROUPS}


class _Parser:
    """A position in a list of tokens, the last of which is the end."""

    def __init__(self, given: List[Token]) -> None:
        self.given = given
        self.at = 0
        self.depth = 0

    @property
    def token(self) -> Token:
        return self.given[self.at]

    def next(self) -> Token:
        token = self.token
        self.at += token.kind != END
        return token

    def found(self, *texts: str) -> bool:
        """Take the next token where it is a sign or a keyword of these."""
        if self.token.keyword not in texts:
            return False
        self.next()
        return True

    def need(self, text: str, why: str) -> None:
        if not self.found(text):
            raise fault(self.token, f"expected {quoted(text)}{why}{_instead(self.token)}")

    def whole(self) -> Node:
        node = self.any_of()
        if self.token.kind != END:
            raise fault(self.token, f"expected and, or, or the end{_instead(self.token)}")
        return node

    def any_of(self) -> Node:
        terms = [self.all_of()]
        while self.found("or"):
            terms.append(self.all_of())
        return terms[0] if len(terms) == 1 else Or(tuple(terms))

    def all_of(self) -> Node:
        terms = [self.term()]
        while self.found("and"):
            terms.append(self.term())
        return terms[0] if len(terms) == 1 else And(tuple(terms))

    def term(self) -> Node:
        self.depth += 1
        if self.depth > DEEPEST:
            raise fault(self.token, f"more than {DEEPEST} brackets and nots within each other")
        node = self.bracket() if self.token.keyword in ("(", "not") else self.comparison()
        self.depth -= 1
        return node

    def bracket(self) -> Node:
        opened = self.next()
        if opened.keyword == "not":
            return Not(self.term())
        node = self.any_of()
        self.need(")", f" for the ( at character {opened.place}")
        return node

    def comparison(self) -> Node:
        left = self.operand("a field")
        if self.token.keyword in ("in", "not"):
            return self.membership(left)
        terms: List[Node] = []
        while self.token.kind == SIGN and self.token.text in (*_EQUALITIES, *_ORDERS, *_SEARCHES):
            sign = self.next()
            right = self.two_words(left) or self.operand(_expected_after(left, sign))
            terms.append(_compare(left, sign, right))
            left = right
        if not terms:
            raise _no_comparison(left, self.token)
        return terms[0] if len(terms) == 1 else And(tuple(terms))

    def operand(self, expected: str) -> Token:
        if self.token.kind not in (WORD, NUMBER, TEXT) or self.token.keyword in ("and", "or", "not", "in"):
            raise fault(self.token, f"expected {expected}{_instead(self.token)}")
        return self.next()

    def membership(self, field: Token) -> Node:
        negated = self.found("not")
        _require_field(field)
        self.need("in", " after not")
        sign = Token(SIGN, "in", self.token.place)
        self.need("(", " after in")
        values = [self.member(field, sign)]
        while self.found(","):
            values.append(self.member(field, sign))
        self.need(")", " or , after a value of in")
        node = Compare(field.text, "==", tuple(values))
        return Not(node) if negated else node

    def member(self, field: Token, sign: Token) -> Value:
        value = self.two_words(field) or self.operand(f"{FIELDS[field.text].value} in the list")
        return _value(field.text, sign, value)

    def two_words(self, field: Token) -> Optional[Token]:
        """Take a state of two words without quotes ("possibly leaked", "in use") where there is one."""
        first, second = self.token, self.given[min(self.at + 1, len(self.given) - 1)]
        joined = f"{first.keyword} {second.keyword}"
        kind = FIELDS.get(field.text) if field.kind == WORD else None
        if kind not in (FieldKind.STATE, FieldKind.REACH) or joined not in _names_of(kind):
            return None
        self.at += 2
        return Token(TEXT, joined, first.place)


def _expected_after(left: Token, sign: Token) -> str:
    if left.kind == WORD and left.text in FIELDS:
        return f"{_wanted(left.text, sign.text)} after {sign.text}"
    return f"a field after {sign.text}"


def _wanted(field: str, sign: str) -> str:
    return "a regular expression" if sign in _SEARCHES else FIELDS[field].value


def _no_comparison(left: Token, token: Token) -> Exception:
    if left.kind == WORD and left.text in FIELDS:
        return fault(token, f"expected a comparison after {left.text}{_instead(token)}")
    if left.kind == WORD:
        return _no_field(left)
    return fault(token, f"expected a comparison after {left.shown}{_instead(token)}")


def _instead(token: Token) -> str:
    return ", but it ends there" if token.kind == END else f", not {token.shown}"


def _no_field(word: Token) -> Exception:
    near = nearest(word.text, list(FIELDS))
    hint = f"did you mean {near}? " if near else ""
    return fault(word, f"no field {quoted(word.text)}", f"{hint}the fields are {', '.join(FIELDS)}")


def _require_field(word: Token) -> None:
    if word.kind != WORD or word.text not in FIELDS:
        raise _no_field(word) if word.kind == WORD else fault(word, f"expected a field before in, not {word.shown}")


def _compare(left: Token, sign: Token, right: Token) -> Node:
    """Return one comparison, the field on the left."""
    fields = [token for token in (left, right) if token.kind == WORD and token.text in FIELDS]
    if len(fields) == 2:
        raise fault(right, f"expected {_wanted(left.text, sign.text)} after {sign.text}, not a field")
    if not fields:
        word = next((token for token in (left, right) if token.kind == WORD), None)
        raise _no_field(word) if word else fault(left, f"no field on either side of {sign.text}")
    field, value, text = (left, right, sign.text) if fields[0] is left else (right, left, _mirrored(sign))
    node = Compare(field.text, _plain(text), (_value(field.text, Token(SIGN, text, sign.place), value),))
    return Not(node) if text.startswith("!") else node


def _mirrored(sign: Token) -> str:
    if sign.text not in _MIRRORED:
        raise fault(sign, f"{sign.text} has the field on its left, and a regular expression on its right")
    return _MIRRORED[sign.text]


def _plain(sign: str) -> str:
    return {"!=": "==", "!~": "~"}.get(sign, sign)


def _value(field: str, sign: Token, token: Token) -> Value:
    """Return what a field is compared with.

    :raises UsageError: when it can't be compared so, or with that.
    """
    kind = FIELDS[field]
    if sign.text not in (*_SIGNS[kind], "in"):
        raise fault(sign, f"{field} cannot be compared by {sign.text}", f"it takes {', '.join(_SIGNS[kind])} and in")
    if sign.text in _SEARCHES:
        return _pattern(sign, token)
    value = _value_of_kind(kind, token)
    if value is None:
        raise fault(token, f"expected {kind.value} after {sign.text}, not {token.shown}", _hint(field, kind))
    return value


def _value_of_kind(kind: FieldKind, token: Token) -> Optional[Value]:
    number = token.number if token.kind == NUMBER else None
    word = None if token.kind == NUMBER else " ".join(token.text.lower().replace("-", " ").replace("_", " ").split())
    if kind is FieldKind.NUMBER:
        return number
    if kind is FieldKind.ARENA:
        return NO_ARENA_WORD if word == NO_ARENA_WORD else number
    if kind is FieldKind.THREAD:
        return token.text if number is None else number
    if kind is FieldKind.TEXT:
        return token.text
    return word if word in _names_of(kind) else None


def _names_of(kind: FieldKind) -> Sequence[str]:
    if kind is FieldKind.STATE:
        return (*state_names(), *REACH_NAMES)
    return tuple(REACH_NAMES if kind is FieldKind.REACH else LEVELS)


def _hint(field: str, kind: FieldKind) -> Optional[str]:
    return f"the states are {', '.join(_names_of(kind))}" if field == "state" else None


def _pattern(sign: Token, token: Token) -> str:
    if token.kind == NUMBER:
        raise fault(token, f"expected a regular expression in quotes after {sign.text}, not {token.shown}")
    try:
        re.compile(token.text)
    except (re.error, OverflowError, RecursionError) as error:
        raise fault(token, f"{token.shown} is no regular expression: {error}") from None
    return token.text
