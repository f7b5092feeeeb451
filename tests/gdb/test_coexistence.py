"""Beside pwndbg and GEF, in either order, nobody loses a command; builtins keep their abbreviations.

The names that the others define are pinned in ``data/*-commands.txt``.
"""

from __future__ import annotations

import pytest

from gdbext.grammar import catalogue
from tests.gdb.bridged import DATA, gdb, need_gdb, python
from tests.support.cache import CHECKOUT

PACKS = ("pwndbg", "gef", "bata24-gef")

# All that the design will ever want, so that a clash shows before the command is written.
WANTED = ["triage", "rss", "glibc", "jemalloc", "blocks", "walklist", "listcount", "listprint", "slabskew"]
WANTED += ["lockwait", "heapdiff", "heapmap", "gx"]


@pytest.fixture(autouse=True)
def _gdb():
    need_gdb()


def pinned(pack):
    lines = (DATA / f"{pack}-commands.txt").read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def roots():
    return {spec.name.split()[0] for spec in catalogue.COMMANDS if not spec.prefixed_only} | {"gx"}


@pytest.mark.parametrize("pack", PACKS)
def test_names_of_others_are_known_as_such(pack):
    assert len(pinned(pack)) > 50
    assert pinned(pack) & (set(WANTED) | roots()) <= set(catalogue.FOREIGN_NAMES)


LIST = """
import sys, gdb
state = sys.modules.setdefault('coexistence', type(sys)('coexistence'))
def names():
    gdb.execute('set max-completions unlimited')
    found = set()
    for letter in [chr(code) for code in range(33, 127) if chr(code) not in '!|#']:
        for line in gdb.execute('complete ' + letter, to_string=True).splitlines():
            found.add(line.strip())
    return {name for name in found if name and ' ' not in name}
if hasattr(state, 'before'):
    print('NEW', ' '.join(sorted(names() - state.before)))
else:
    state.before = names()
"""


@pytest.mark.parametrize("pack", PACKS)
def test_no_name_or_alias_of_theirs_is_defined(tmp_path, pack):
    listing = python(tmp_path / "list.py", LIST)
    output = gdb(listing, f"source {CHECKOUT / 'gdbext' / 'load.py'}", listing, load=False)
    new = set(output.out.split("NEW ")[1].split())
    assert roots() - set(catalogue.FOREIGN_NAMES) <= new, output
    assert not new & pinned(pack)


DUMMIES = """
import gdb
class Dummy(gdb.Command):
    def __init__(self, name):
        super().__init__(name, gdb.COMMAND_USER)
        self.name = name
    def invoke(self, text, from_tty):
        print('theirs', self.name, text)
for name in open({path!r}).read().split('\\n'):
    if name and not name.startswith('#'):
        Dummy(name)
"""

ASK = """
import gdb
for name in {names!r}:
    print(gdb.execute(name + ' x', to_string=True).strip() == 'theirs ' + name + ' x' or name)
"""


@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize("first", ("ours", "theirs"))
def test_neither_side_loses_a_command(tmp_path, pack, first):
    theirs = python(tmp_path / "dummies.py", DUMMIES.format(path=str(DATA / f"{pack}-commands.txt")))
    ours = f"source {CHECKOUT / 'gdbext' / 'load.py'}"
    ask = python(tmp_path / "ask.py", ASK.format(names=sorted(pinned(pack))))
    loading = (ours, theirs) if first == "ours" else (theirs, ours)
    output = gdb(*loading, ask, "gx commands --json", load=False)
    answers, _, listing = output.out.partition('{"schema"')
    assert set(answers.split()) == {"True"}, output
    for root in roots() - set(catalogue.FOREIGN_NAMES) - {"gx"}:
        assert f'"plain": "{root}' in listing
    assert "error" not in output.err.lower()


PREFIXES = """
import gdb
gdb.execute('set max-completions unlimited')
def reached(prefix):
    try:
        text = gdb.execute('help ' + prefix, to_string=True)
    except gdb.error as error:
        return str(error).split(':')[0].split(' "')[0]
    lines = text.splitlines()
    # The first line lists aliases, which is what restoring adds.
    return '\\n'.join(lines[1:] if ', ' in lines[0] and not lines[0].endswith('.') else lines)
import sys
state = sys.modules.setdefault('prefixes', type(sys)('prefixes'))
now = {prefix: reached(prefix) for prefix in %r}
if hasattr(state, 'before'):
    for prefix, text in state.before.items():
        if not text.startswith(('Undefined', 'Ambiguous')):
            print(prefix, now[prefix] == text)
else:
    state.before = now
"""


def test_every_abbreviation_that_worked_still_works(tmp_path):
    """Also for names that later issues bring: their rows are added before registration."""
    names = sorted(roots() | set(WANTED))
    prefixes = sorted({name[:end] for name in names for end in range(1, len(name))})
    extend = python(
        tmp_path / "extend.py",
        f"import sys\nsys.path.insert(0, {str(CHECKOUT)!r})\n"
        "from gdbext.grammar import catalogue\n"
        "known = {spec.name.split()[0] for spec in catalogue.COMMANDS}\n"
        f"new = [name for name in {WANTED!r} if name not in known | {{'gx', 'jemalloc'}}]\n"
        "rows = [catalogue.CommandSpec(name, 'x:y', 'z') for name in new]\n"
        "catalogue.COMMANDS = (*catalogue.COMMANDS, *rows)\n",
    )
    ask = python(tmp_path / "ask.py", PREFIXES % (prefixes,))
    output = gdb(extend, ask, f"source {CHECKOUT / 'gdbext' / 'load.py'}", ask, load=False)
    answers = dict(line.rsplit(" ", 1) for line in output.out.splitlines())
    assert {"wa", "li", "lo", "he", "tr", "rs"} <= set(answers), output
    assert set(answers.values()) == {"True"}, answers


def test_gx_commands_names_the_owner(tmp_path):
    own = python(tmp_path / "own.py", DUMMIES.format(path=str(tmp_path / "names")))
    (tmp_path / "names").write_text("rss\n")
    output = gdb(own, f"source {CHECKOUT / 'gdbext' / 'load.py'}", "gx commands", "rss x", load=False)
    rows = [line for line in output.out.splitlines() if line.startswith("gx rss")]
    if "rss" in roots():
        assert "(taken by gdb or another script)" in rows[0], output
    assert "theirs rss x" in output.out
