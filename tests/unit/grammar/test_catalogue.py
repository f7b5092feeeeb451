"""The table of commands against what it speaks of."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from gdbext.analysis.blocks.listrows import COLUMNS
from gdbext.analysis.blocks.query import FIELDS
from gdbext.analysis.blocks.summary import STATE_GROUPS
from gdbext.grammar import catalogue
from gdbext.heap.jemalloc.report.extents import STATES
from gdbext.heap.model import State

ROOT = Path(__file__).resolve().parents[3]


def test_names_for_completion_are_the_engines():
    states = {state.label.replace(" ", "-") for state in State}
    assert set(catalogue.BLOCK_STATES) == states | set(STATE_GROUPS)
    assert tuple(catalogue.EXTENT_STATES) == tuple(STATES)
    assert set(catalogue.BLOCK_FIELDS) == set(FIELDS) and set(catalogue.BLOCK_COLUMNS) == set(COLUMNS)


def test_every_command_names_a_function():
    for spec in (*catalogue.COMMANDS, *catalogue.OWN_COMMANDS):
        module, _, name = spec.run.partition(":")
        folder = ROOT / "gdbext" if spec.own else ROOT / "commands"
        tree = ast.parse((folder / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, spec.name


def test_every_command_has_one_topic():
    topics = [spec.name for topic in catalogue.TOPICS for spec in catalogue.commands_about(topic)]
    assert sorted(topics) == sorted(spec.name for spec in catalogue.COMMANDS)


def test_the_catalogue_needs_neither_gdb_nor_numpy():
    code = "import gdbext.grammar.catalogue, sys; print(sorted({'gdb', 'numpy', 'tabulate'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")
