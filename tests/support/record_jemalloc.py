#!/usr/bin/env python3
"""Record jemalloc's structures from a build with debug info.

Usage: record_jemalloc.py VERSION COMMIT LIBRARY > gdbext/heap/jemalloc/data/layouts/VERSION.json

Facts only: structure, member, offset, size, count, under the names of ``layouts.WANTED``. gdb reads the debug info;
``tests/unit/heap/jemalloc`` compares the tables with what ``ptype /o`` prints.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_ASK = """
import json, sys
sys.path.insert(0, {root!r})
import gdb
from gdbext.bridge.ports.symbols import GdbSymbols
from gdbext.heap.jemalloc.layouts import pick_structs, to_table
def find(tag):
    found = GdbSymbols().find_structs(tag)
    return found[0].layout if found else None
print(json.dumps(to_table(pick_structs(find))))
"""


def ask_gdb(library: str, gdb: str = "gdb") -> dict:
    """Return the structures of a library, as :func:`to_table` gives them."""
    code = _ASK.format(root=str(ROOT))
    done = subprocess.run(
        [
            gdb,
            "-nx",
            "-q",
            "-batch",
            "-ex",
            "source " + str(ROOT / "gdbext" / "load.py"),
            "-ex",
            f"python exec({code!r})",
            library,
        ],
        capture_output=True,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"gdb says: {done.stdout}{done.stderr}")
    return json.loads(lines[-1])


def main() -> None:
    """Print the facts of one build."""
    version, commit, library = sys.argv[1:]
    rows = [f"  {json.dumps(name)}: {json.dumps(facts)}" for name, facts in ask_gdb(library).items()]
    joined = ",\n".join(rows)
    print(
        f'{{"version": {json.dumps(version)}, "commit": {json.dumps(commit)}, "structs": {{\n{joined}\n}}}}'
    )


if __name__ == "__main__":
    main()
