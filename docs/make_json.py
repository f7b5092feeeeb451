"""Writes ``docs/json.md``: its text is in ``json.in``, its tables come from the declarations of the reports, and what a
command is about from the table of commands.

    python3 docs/make_json.py           write the page, and add what is new to the list of what is kept
    python3 docs/make_json.py --check   say whether it is what would be written: status 1 if not

A line ``{{fields MODULE:CLASS …}}`` in ``json.in`` becomes the table of what these dataclasses hold. Words behind them:
``FIELD=MODULE:CLASS`` names the rows of a table that its annotation does not, ``only=FIELD,…`` leaves the other fields
out. Lines of a table that follow replace those of the same field, for what one command alone has to say; ``{{kinds}}``
in them is the kinds of all findings.

A field's meaning is its ``:param NAME:`` in the docstring of its class, or of one above. Its kind follows from the
declaration and the annotation, unless ``:type NAME:`` says more, such as ``word`` (of a closed list) or ``signed``.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Iterator, NamedTuple, Optional

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from gdbext._mount import mount  # noqa: E402

mount(str(HERE.parent / "gdbext"))
from gdbext.grammar.catalogue import COMMANDS  # noqa: E402
from gdbext.render.plain import members_of  # noqa: E402
from gdbext.report import Kind, Rows, ThreadRef  # noqa: E402

PAGE, SOURCE = HERE / "json.md", HERE / "json.in"
KEPT = HERE.parent / "tests" / "unit" / "render" / "schema-2.txt"
HEAD = ["| field | kind | meaning |", "|---|---|---|"]
KINDS = {Kind.NUMBER: "count", **{kind: kind.value for kind in Kind if kind not in (Kind.NUMBER, Kind.OBJECT)}}
PLAIN = {int: "count", float: "number", str: "text", bool: "flag"}
_PARAM = re.compile(r"^\s*:(param|type) (\w+): (.*?)(?=^\s*:|^\s*$|\Z)", re.MULTILINE | re.DOTALL)
_DIRECTIVE = re.compile(r"\{\{fields (.*)\}\}")
_HEADING = re.compile(r"### `([^`]+)`")
_FIELD = re.compile(r"\| `([^`]+)` \| (.*?) \| (.*?)\s*\|")


class Field(NamedTuple):
    """One line of a table."""

    path: str
    kind: str
    meaning: str

    def __str__(self) -> str:
        return f"| `{self.path}` | {self.kind} | {self.meaning + ' ' if self.meaning else ''}|"


def page() -> str:
    """Return what ``json.md`` is to hold."""
    source = SOURCE.read_text(encoding="utf-8")
    return "\n".join(_lines(source.replace("{{kinds}}", ", ".join(_kinds_of_findings(source))).split("\n")))


def _kinds_of_findings(source: str) -> Sequence[str]:
    """Return the kinds that the table of them lists."""
    table = source.partition("\n## Kinds of findings\n")[2].partition("\n## ")[0]
    return [kind for line in table.splitlines() for kind in re.findall(r"`[^`]+`", line.split(" | ")[0])]


def _lines(source: Sequence[str]) -> Iterator[str]:
    summaries = {spec.name: spec.summary for spec in COMMANDS}
    at = 0
    while at < len(source):
        directive, heading, line = _DIRECTIVE.fullmatch(source[at]), _HEADING.fullmatch(source[at]), source[at]
        at += 1
        if not directive:
            yield line
            yield from ["", f"*{summaries[heading[1]]}*"] if heading else []
            continue
        own = []
        while at < len(source) and source[at].startswith("|"):
            own.append(_field_in(source[at]))
            at += 1
        yield from HEAD
        yield from map(str, _replaced(fields_of(directive[1]), own))


def _field_in(line: str) -> Field:
    found = _FIELD.fullmatch(line)
    if not found:
        raise SystemExit(f"json.in: no line of a table: {line}")
    return Field(*found.groups())


def _replaced(fields: Sequence[Field], own: Sequence[Field]) -> Iterator[Field]:
    """Iterate over fields, of which a command's own lines replace some; several may stand for what one field holds."""
    left = list(own)
    for field in fields:
        mine = [each for each in left if re.fullmatch(re.escape(field.path) + r"([.\[].*)?", each.path)]
        left = [each for each in left if each not in mine]
        yield from mine or [field]
    if left:
        raise SystemExit(f"json.in: no such field: {', '.join(each.path for each in left)}")


def fields_of(words: str) -> Sequence[Field]:
    """Return the fields that a directive names, each path once."""
    named, classes, only = {}, [], None
    for word in words.split():
        name, _, value = word.rpartition("=")
        if name == "only":
            only = value.split(",")
        elif name:
            named[name] = _load(value)
        else:
            classes.append(_load(word))
    fields = {field.path: field for each in reversed(classes) for field in _fields(each, "", named)}
    ordered = [path for each in classes for path in [field.path for field in _fields(each, "", named)]]
    chosen = [fields[path] for path in dict.fromkeys(ordered)]
    return [field for field in chosen if only is None or re.split(r"[.\[]", field.path)[0] in only]


def _load(place: str) -> type:
    module, _, name = place.partition(":")
    loaded: type = getattr(importlib.import_module(module), name)
    return loaded


def _fields(record: type, prefix: str, named: Mapping[str, type]) -> Iterator[Field]:
    """Iterate over what is in the JSON of a dataclass; what it nests is below its own path."""
    types = annotations_of(record)
    for name, show in members_of(record):
        kind, meaning = documented(record, name)
        bare, null = _without_none(types[name])
        path = prefix + name
        row = named.get(path) or _row_of(bare)
        if kind is not None or show.kind is Kind.THREADS:
            yield Field(path, kind or f"threads{null}", meaning)
        elif dataclasses.is_dataclass(bare):
            yield from _fields(bare, f"{path}.", named)
        elif row is not None:
            yield from _fields(row, f"{path}[].", named)
        else:
            yield Field(path + _brackets(bare), _kind(show.kind, bare) + null, meaning)


def annotations_of(record: type) -> Mapping[str, Any]:
    """Return the types of a dataclass's fields, its bases' too."""
    found: dict[str, Any] = {}
    for each in reversed(record.__mro__):
        known = {**vars(typing), **vars(sys.modules[each.__module__])}
        for name, text in vars(each).get("__annotations__", {}).items():
            found[name] = eval(text, known) if isinstance(text, str) else text
    return found


def documented(record: type, name: str) -> tuple[Optional[str], str]:
    """Return what the docstrings of a dataclass and its bases say of a field: its kind or None, and its meaning."""
    said: dict[str, str] = {}
    for each in record.__mro__:
        for role, field, text in _PARAM.findall(inspect.cleandoc(vars(each).get("__doc__") or "")):
            if field == name:
                said.setdefault(role, _as_markdown(" ".join(text.split())))
    kind = said.get("type")
    return (kind + _without_none(annotations_of(record)[name])[1] if kind else None), said.get("param", "").rstrip(".")


def _as_markdown(text: str) -> str:
    """Return a docstring's text as Markdown; what is None in Python is null in JSON."""
    parts = text.replace("``", "`").split("`")
    parts[::2] = [re.sub(r"\bNone\b", "null", part) for part in parts[::2]]
    return "`".join(parts)


def _without_none(hint: Any) -> tuple[Any, str]:
    """Return a type without None, and " or null" where that was in it."""
    inner = [each for each in typing.get_args(hint) if each is not type(None)]
    if typing.get_origin(hint) is typing.Union and len(inner) < len(typing.get_args(hint)):
        return inner[0], " or null"
    return hint, ""


def _row_of(hint: Any) -> Optional[type]:
    """Return the dataclass of a table's rows, or None where it is no table."""
    row = _item(hint)
    return row if dataclasses.is_dataclass(row) and row is not ThreadRef else None  # type: ignore[return-value]


def _item(hint: Any) -> Any:
    """Return what a sequence is made of, or None."""
    inner = [each for each in typing.get_args(hint) if each is not Ellipsis]
    return inner[0] if typing.get_origin(hint) in (tuple, list, Sequence, Rows) and len(inner) == 1 else None


def _brackets(hint: Any) -> str:
    item = _item(hint)
    return "" if item in (None, str, ThreadRef) else "[]" + _brackets(item)


def _kind(kind: Kind, hint: Any) -> str:
    item = _item(hint)
    if item in (str, ThreadRef):
        return "texts" if item is str else "threads"
    if item is not None:
        return _kind(kind, item)
    return KINDS.get(kind) or PLAIN.get(hint) or f"object of {hint}"


def for_each_field(text: str) -> Iterator[tuple[str, Field]]:
    """Iterate over the fields that a page lists, each with its command."""
    command = None
    for line in text.splitlines():
        heading = re.fullmatch(r"(#+) (?:`([^`]+)`)?.*", line)
        if heading:
            command = heading[2] if heading[1] == "###" else None
        elif command and line.startswith("| `"):
            yield command, _field_in(line)


def words_of(field: Field) -> Sequence[str]:
    """Return the closed list that a field's values are of; none where there is no such list."""
    closed = field.kind.startswith(("word", "named counts"))
    return list(dict.fromkeys(re.findall(r"`([^`]+)`", field.meaning))) if closed else []


def _add_to_kept(text: str) -> None:
    """Add fields that are new to the list of what is kept; nothing in it changes."""
    known = {tuple(line.split("\t")[:2]) for line in KEPT.read_text(encoding="utf-8").splitlines()}
    with KEPT.open("a", encoding="utf-8") as file:
        for command, field in for_each_field(text):
            if (command, field.path) not in known:
                file.write("\t".join((command, field.path, field.kind, ",".join(words_of(field)))) + "\n")


def main() -> int:
    """Write the page, or compare it."""
    if sys.argv[1:] == ["--check"]:
        same = PAGE.read_text(encoding="utf-8") == page()
        if not same:
            print("docs/json.md is not what python3 docs/make_json.py writes", file=sys.stderr)
        return 0 if same else 1
    text = page()
    PAGE.write_text(text, encoding="utf-8")
    _add_to_kept(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
