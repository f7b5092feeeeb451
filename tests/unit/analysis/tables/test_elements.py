"""Elements chosen, shown, and handed to commands, with a debugger that says what the test wants."""

import json

import pytest

from gdbext.analysis.tables import elements
from gdbext.errors import UsageError
from gdbext.progress import SILENT
from gdbext.render import json_pieces, remarks, text
from tests.unit.analysis.tables.walks import bins_walk, head, list_walk, opened, table, walked


class Debugger:
    """Elements are numbers: a condition is a function of the address; None is what has no value."""

    def __init__(self, condition=None):
        self.condition = condition
        self.asked = []

    def show(self, address, type_name, fields):
        return [f"{name or type_name}@{address:x}" for name in fields or [""]]

    def run(self, command, address, type_name):
        self.asked.append(address)
        return f"{command}\t{address}\nagain\n"

    def test(self, expression, address, type_name):
        self.asked.append(address)
        return self.condition(address)

    def check(self, expression, address, type_name):
        raise UsageError(f"cannot evaluate {expression!r}: no")


def shown(report, limit=None):
    return "".join(text(report, exact=False, limit=limit))


def document(report, limit=None):
    return json.loads("".join(json_pieces(report, schema="x/1", target=None, limit=limit)))


def two_tables(sizes=(3, 2)):
    made, at = [], 0x100
    for index, size in enumerate(sizes):
        chain = [at + 0x10 * number for number in range(size)]
        at += 0x1000
        made.append((table(2, address=0x9000 + index), bins_walk([chain, []])))
    return opened(*(each for each, _ in made)), walked(*made)


def test_every_element():
    how, walks = two_tables()
    chosen = elements.every(walks)
    assert [(each.index, each.table, each.address) for each in chosen] == [
        (0, 0, 0x100), (1, 0, 0x110), (2, 0, 0x120), (3, 1, 0x1100), (4, 1, 0x1110),
    ]  # fmt: skip
    assert chosen.count == 5 and not chosen.filtered


def test_those_for_which_a_condition_holds():
    how, walks = two_tables()
    chosen = elements.choose(walks, "c", Debugger(lambda address: address & 0x10 == 0), SILENT)
    assert [(each.index, each.table, each.address) for each in chosen] == [
        (0, 0, 0x100), (2, 0, 0x120), (3, 1, 0x1100),
    ]  # fmt: skip
    report = elements.element_report(how, chosen, (), Debugger())
    data = document(report)["data"]
    assert (data["walked"], data["matching"]) == (5, 3)
    assert data["elements"][1] == {
        "index": 2,
        "table": 0,
        "address": "0x120",
        "fields": {"element": "struct entry@120"},
    }
    assert not report.problems and report.complete


def test_elements_without_a_value_are_left_out_and_told():
    how, walks = two_tables()
    chosen = elements.choose(walks, "c", Debugger(lambda address: None if address < 0x120 else True), SILENT)
    assert chosen.count == 3
    [problem] = elements.element_report(how, chosen, (), Debugger()).problems
    assert (problem.kind, problem.address) == ("unread-element", 0x100)
    assert problem.message == "'c' has no value for 2 elements, this is the first"


@pytest.mark.parametrize("count", [1, 15, 16, 1000])
def test_a_condition_without_any_value_is_an_error(count):
    how, walks = two_tables((count,))
    debugger = Debugger(lambda address: None)
    with pytest.raises(UsageError, match="cannot evaluate 'c': no"):
        elements.choose(walks, "c", debugger, SILENT)
    assert len(debugger.asked) <= 16


def test_a_condition_over_nothing():
    how, walks = two_tables((0, 0))
    assert elements.choose(walks, "c", Debugger(lambda address: None), SILENT).count == 0


def test_an_interrupt_leaves_the_rest_out():
    class Impatient:
        def at(self, doing, done, total):
            if done:
                raise KeyboardInterrupt

    how, walks = two_tables((1000, 5))
    chosen = elements.choose(walks, "c", Debugger(lambda address: True), Impatient())
    assert 0 < chosen.count < 1000
    report = elements.element_report(how, chosen, (), Debugger())
    assert not report.complete
    assert report.problems[0].kind == "interrupted" and "of 1 005 elements" in report.problems[0].message


def test_members_have_columns_of_their_own():
    each = head()
    walks = walked((each, list_walk([0x10, 0x20])))
    report = elements.element_report(opened(each), elements.every(walks), ["key.name", "hash"], Debugger())
    assert document(report)["data"] == {
        "elements": [
            {"index": 0, "address": "0x10", "table": 0, "fields": {"key.name": "key.name@10", "hash": "hash@10"}},
            {"index": 1, "address": "0x20", "table": 0, "fields": {"key.name": "key.name@20", "hash": "hash@20"}},
        ],
        "walked": 2,
        "matching": 2,
    }
    lines = shown(report).splitlines()
    assert lines[1].split() == ["index", "address", "key.name", "hash"]
    assert lines[2].split() == ["0", "0x10", "key.name@10", "hash@10"]
    assert "matching" not in shown(report)
    assert "1 more (--limit 0 shows all)" in shown(report, 1)


def test_the_same_member_twice():
    each = head()
    report = elements.element_report(
        opened(each), elements.every(walked((each, list_walk([0x10])))), ["a", "a"], Debugger()
    )
    assert shown(report).splitlines()[2].split() == ["0", "0x10", "a@10", "a@10"]


def test_bare_addresses():
    how, walks = two_tables()
    report = elements.address_report(how, elements.every(walks))
    assert shown(report) == "0x100\n0x110\n0x120\n0x1100\n0x1110\n"
    assert shown(report, 2) == "0x100\n0x110\n"
    assert "".join(remarks(report)) == ""
    assert document(report)["data"] == {"elements": [{"address": f"0x{at}"} for at in (100, 110, 120, 1100, 1110)]}


def test_more_bare_addresses_than_the_usual_limit():
    each = head()
    report = elements.address_report(opened(each), elements.every(walked((each, list_walk(range(500))))))
    assert len(shown(report).splitlines()) == 500


def test_what_bare_addresses_cannot_say_goes_elsewhere():
    each = head(entries=7)
    report = elements.address_report(opened(each), elements.every(walked((each, list_walk([16])))))
    assert shown(report) == "0x10\n"
    assert "list-count at 0x8000: the list counts 7 entries, 1 was walked" in "".join(remarks(report))


def test_a_command_for_each():
    how, walks = two_tables()
    debugger = Debugger()
    report = elements.output_report(how, elements.every(walks), "p", 2, debugger)
    assert shown(report) == "p\t256\nagain\np\t272\nagain\n"
    assert debugger.asked == [0x100, 0x110]
    assert "".join(remarks(report)) == "… 3 more (--limit 0 takes all)\n"
    data = document(elements.output_report(how, elements.every(walks), "p", 0, debugger))["data"]
    assert len(data["elements"]) == 5
    assert data["elements"][4] == {"index": 4, "table": 1, "address": "0x1110", "output": "p\t4368\nagain"}


def test_output_reaches_no_terminal_unescaped():
    class Hostile(Debugger):
        def run(self, command, address, type_name):
            return "a\x1b[2Jb\n"

    how, walks = two_tables((1,))
    assert shown(elements.output_report(how, elements.every(walks), "p", 0, Hostile())) == "a\\x1b[2Jb\n"


def test_an_interrupt_between_outputs_is_told():
    class Stopping(Debugger):
        def run(self, command, address, type_name):
            if len(self.asked) == 2:
                raise KeyboardInterrupt
            return super().run(command, address, type_name)

    how, walks = two_tables()
    report = elements.output_report(how, elements.every(walks), "p", 0, Stopping())
    lines = text(report, exact=False, limit=None)
    assert [next(lines), next(lines)] == ["p\t256\nagain\n", "p\t272\nagain\n"]
    with pytest.raises(KeyboardInterrupt):
        next(lines)
    assert document(report)["complete"] is False
