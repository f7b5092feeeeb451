"""``set gx NAME`` and ``show gx``, from the rows of ``gdbext.grammar.catalogue``."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

import gdb

from gdbext.bridge.commands.charset import writable
from gdbext.errors import GdbextError
from gdbext.grammar.arguments import parse_size
from gdbext.wording import printable

_parameters: "dict[str, _Setting]" = {}


def register(rows: Sequence[Any]) -> None:
    """Register ``set gx``, ``show gx`` and a parameter for each row."""
    _Prefix("set gx", "Change a setting of gdbext.")
    _Prefix("show gx", "Show the settings of gdbext.")
    for row in rows:
        _parameters[row.name] = _KINDS.get(row.kind, _Setting)(row)


def current() -> Mapping[str, int]:
    """Return the value of every setting that is a number: bytes, per cent, seconds, or 0 and 1."""
    return {
        name: parameter.number() for name, parameter in _parameters.items() if parameter.row.kind != "text"
    }


def current_text(name: str) -> str:
    """Return the value of a setting that is a text."""
    return str(_parameters[name].value or "")


def current_value(name: str) -> int:
    """Return one setting's value, as :func:`current` has it."""
    return _parameters[name].number()


class _Setting(gdb.Parameter):
    """A number or a flag, which gdb itself checks."""

    def __init__(self, row: Any, kind: int = -1) -> None:
        self.row = row
        self.set_doc = f"{row.help}."
        self.show_doc = f"{row.help}."
        self.__doc__ = f"Default: {row.default}."
        if kind < 0:
            kind = gdb.PARAM_BOOLEAN if row.kind == "flag" else gdb.PARAM_ZUINTEGER
        super().__init__(f"gx {row.name}", gdb.COMMAND_DATA, kind)
        self.value = self.initial()

    def initial(self) -> Any:
        """Return the default as gdb keeps it."""
        return bool(self.row.default) if self.row.kind == "flag" else self.row.default

    def number(self) -> int:
        """Return the value as analyses take it."""
        value: Any = self.value
        return int(value or 0)

    def shown(self) -> str:
        """Return the value as it is set."""
        return ("off", "on")[self.number()] if self.row.kind == "flag" else str(self.value)

    def get_set_string(self) -> str:
        """Say nothing when it is set."""
        return ""

    def get_show_string(self, shown: str) -> str:
        """Return the line of ``show gx NAME``."""
        return f"{self.row.help}: {shown}"


class _SizeSetting(_Setting):
    """Bytes, which may be written as 16M and may exceed what gdb's own numbers hold."""

    def __init__(self, row: Any) -> None:
        self._valid = str(row.default)
        super().__init__(row, gdb.PARAM_STRING_NOESCAPE)

    def initial(self) -> Any:
        """Return the default as gdb keeps it."""
        return self._valid

    def number(self) -> int:
        """Return bytes."""
        return parse_size(self._valid)

    def get_set_string(self) -> str:
        """Check what was set; put the old value back when it is no size."""
        try:
            parse_size(str(self.value))
        except GdbextError as error:
            self.value = self._valid
            raise gdb.GdbError(writable(printable(f"gdbext: set gx {self.row.name}: {error}"))) from None
        self._valid = str(self.value)
        return ""


class _TextSetting(_Setting):
    """Any text; none is allowed."""

    def __init__(self, row: Any) -> None:
        super().__init__(row, gdb.PARAM_STRING_NOESCAPE)


_KINDS: Mapping[str, Callable[[Any], _Setting]] = {"size": _SizeSetting, "text": _TextSetting}


class _Prefix(gdb.Command):
    """``set gx`` and ``show gx`` themselves."""

    def __init__(self, name: str, summary: str) -> None:
        self.name = name
        self.__doc__ = summary
        super().__init__(name, gdb.COMMAND_DATA, gdb.COMPLETE_NONE, True)

    def invoke(self, text: str, from_tty: bool) -> None:
        """List the settings, or name the one that does not exist."""
        if text.strip():
            known = ", ".join(_parameters)
            raise gdb.GdbError(writable(f"gdbext: {self.name}: no setting {text.split()[0]!r}; there are {known}"))
        for name, parameter in _parameters.items():
            line = f"gx {name}: {parameter.shown()}  ({parameter.row.help}.)"
            gdb.write(writable(printable(line)) + "\n")
