"""A decorator that makes a gdb command from a function and an ``argparse`` parser, as pwndbg's does."""

from __future__ import annotations

import argparse
from typing import Any, Callable, NoReturn, Sequence, Union

import gdb

from gdbext.bridge.commands import names
from gdbext.bridge.expressions import selection
from gdbext.bridge.expressions.evaluate import evaluate
from gdbext.bridge.stops import session
from gdbext.errors import GdbextError, UsageError

Function = Callable[..., Any]

# By name: sourcing a script again replaces its own commands.
_own: "set[str]" = set()


class Command:
    """Register the decorated function as a gdb command.

    Arguments declared with ``type=int``, or without a type, are gdb expressions and arrive as integers;
    ``type=str`` leaves them as written. They are passed by name. Errors of the target and of the user are one
    line; the selection is restored afterwards.

    :param parser_or_desc: a parser, or the description of a command without arguments.
    :param aliases: further names.
    :param command_name: the name; by default the function's.
    :param category: kept for pwndbg's sake; gdb has no use for it.
    :raises ValueError: when gdb, or another script, owns a name already.
    """

    def __init__(
        self,
        parser_or_desc: Union[argparse.ArgumentParser, str],
        *,
        aliases: Sequence[str] = (),
        command_name: str = "",
        category: object = None,
    ) -> None:
        if isinstance(parser_or_desc, str):
            parser_or_desc = argparse.ArgumentParser(description=parser_or_desc)
        self.parser = parser_or_desc
        self.aliases = aliases
        self.command_name = command_name
        self.category = category

    def __call__(self, function: Function) -> Function:
        name = self.command_name or function.__name__
        self.parser.prog = name
        self.parser.error = _refuse  # type: ignore[method-assign]
        for action in self.parser._actions:
            if action.type in (int, None) and action.nargs != 0 and action.dest != "help":
                action.type = _number
        for each in (name, *self.aliases):
            _claim(each)
            _Registered(each, self.parser, function)
        return function


class _Registered(gdb.Command):
    """The command that gdb sees."""

    def __init__(self, name: str, parser: argparse.ArgumentParser, function: Function) -> None:
        self.__doc__ = parser.format_help()
        self._name, self._parser, self._function = name, parser, function
        super().__init__(name, gdb.COMMAND_USER, gdb.COMPLETE_EXPRESSION)

    def invoke(self, text: str, from_tty: bool) -> None:
        """Parse the line and call the function."""
        try:
            arguments = vars(self._parser.parse_args(gdb.string_to_argv(text)))
            with selection.kept():
                self._function(**arguments)
        except SystemExit:  # -h has printed the help
            return
        except GdbextError as error:
            raise gdb.GdbError(f"{self._name}: {error}") from None


def _claim(name: str) -> None:
    if name not in _own and names.find_owner(name):
        raise ValueError(f"the command {name!r} exists already")
    _own.add(name)


def _number(text: str) -> int:
    return evaluate(text, session.current().target.abi.word_mask)


def _refuse(message: str) -> NoReturn:
    raise UsageError(message, "-h shows how it is written")
