"""Commands of a test's own, registered as rows of the table are; sourced into gdb after the loader."""

import dataclasses
import sys
import types

import gdb

from gdbext.bridge.commands.command import PrefixCommand, SpecCommand
from gdbext.errors import FaultError
from gdbext.grammar.arguments import Option
from gdbext.grammar.catalogue import CommandSpec
from gdbext.report import Kind, Report, Rows, column, line, table


@dataclasses.dataclass(frozen=True)
class Row:
    number: int = column("number", Kind.COUNT)


@dataclasses.dataclass(frozen=True)
class Data:
    address: int = line("address", Kind.ADDRESS)
    target: int = line("target", Kind.COUNT)
    rows: object = table("Rows")


def evaluate(context, arguments):
    value = context.evaluate(arguments.expression)
    return Report(Data(value, id(context.target), [Row(number) for number in range(3)]))


def fault(context, arguments):
    assert context.target
    raise FaultError(0x10, 8, "arena")


def bug(context, arguments):
    return {}["nothing"]


def interrupted(context, arguments):
    raise KeyboardInterrupt


def refused(context, arguments):
    gdb.execute("print nosuch", to_string=True)


def broken_rows(context, arguments):
    def rows():
        yield Row(1)
        raise FaultError(0x20, 4, "row")

    return Report(Data(1, 2, Rows(rows, Row, None)))


def endless(context, arguments):
    """Go on until somebody stops it; begin with a line."""
    at = 0
    print("counting", flush=True)
    while True:
        at += 1
        context.progress.at("counting", at, None)


def wander(context, arguments):
    """Do all that a command may do to a selection."""
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        gdb.newest_frame().older().select()
    context.target.symbols.find_tls("per_thread", context.target.threads[0])
    return Report(Data(len(context.target.threads), 0, []))


def heap(context, arguments):
    return Report(Data(id(context.heap(arguments.expression or "glibc")), id(context.heaps()), []))


def settings(context, arguments):
    return Report(Data(context.settings["min-finding-bytes"], context.settings["safe"], []))


module = types.ModuleType("gdbext.commands.probing")
for function in (evaluate, fault, bug, interrupted, refused, broken_rows, endless, wander, heap, settings):
    setattr(module, function.__name__, function)
    spec = CommandSpec(
        f"probe {function.__name__.replace('_', '-')}",
        run=f"probing:{function.__name__}",
        summary="Test",
        options=(Option("size", "size", "a size"),),
        expression="[EXPR]",
        example="probe x",
    )
    if function is evaluate:
        prefix = PrefixCommand("probe", "Test.")
    prefix.words.add(spec.name.split()[1])
    SpecCommand(spec, spec.name)
sys.modules["gdbext.commands.probing"] = module
