# Run inside gdb by test_locate.py: answers the requests in the JSON file REQUESTS.
import json

import gdb

from gdbext.bridge.commands.elements import Elements
from gdbext.bridge.expressions.evaluate import evaluate
from gdbext.bridge.expressions.locate import locate
from gdbext.bridge.ports.discover import find_variables
from gdbext.bridge.stops import session
from gdbext.errors import GdbextError
from gdbext.starting import dependencies

dependencies.load()


def show_type(kind):
    if kind is None:
        return None
    return {"name": kind.name, "tag": kind.tag, "code": kind.code.value, "size": kind.size, "length": kind.length,
            "signed": kind.signed, "target": kind.target and kind.target.name,
            "fields": [[f.name, f.offset, f.type.name, f.bits, f.is_base] for f in kind.fields]}


def show(found):
    if found is None:
        return None
    return {"text": found.text, "type": show_type(found.type), "address": found.address, "value": found.value,
            "found": found.found}


def selection():
    # The level as gdb prints it: it is not in the Python interface of gdb 10.
    thread = gdb.selected_thread()
    level = gdb.execute("frame", to_string=True).split()[0]
    return [thread.num, level, gdb.execute("show language", to_string=True), gdb.parameter("may-call-functions")]


def read_field(name, member):
    found = locate(name)
    field = found.type.find_field(member)
    unit = int.from_bytes(bytes(gdb.selected_inferior().read_memory(found.address + field.offset, field.type.size)),
                          "little")
    shift, width = field.bits
    number = unit >> shift & ((1 << width) - 1)
    return number - (1 << width) if field.type.signed and number >> (width - 1) else number


def discover(tag, limit, most):
    search = find_variables(session.current().target.reader, lambda kind: kind.tag == tag, limit, most)
    found = [show(one) for one in search]
    return {"found": found, "complete": search.complete}


def elements(method, *arguments):
    port = Elements()
    try:
        return getattr(port, method)(*arguments)
    finally:
        port.close()


types = session.current().types
actions = {
    "locate": lambda text: show(locate(text)),
    "evaluate": lambda text: evaluate(text, (1 << 64) - 1),
    "type": lambda name: show_type(types.find_type(name)),
    "global": lambda name: show(types.find_global(name)),
    "gdb": lambda text: gdb.execute(text, to_string=True),
    "again": lambda name: types.find_type(name) is session.current().types.find_type(name),
    "own": lambda name: types.find_type(name).fields[1].type.target is types.find_type(name),
    "field": read_field,
    "discover": discover,
    "elements": elements,
    "selection": selection,
}


def answer(action, *arguments):
    try:
        return {"answer": actions[action](*arguments), "selection": selection()}
    except (GdbextError, gdb.error) as error:
        return {"error": str(error), "selection": selection()}


with open(REQUESTS) as stream:  # noqa: F821  set by the test
    print("ANSWERS " + json.dumps([answer(*request) for request in json.load(stream)]))
