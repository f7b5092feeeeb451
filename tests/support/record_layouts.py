#!/usr/bin/env python3
"""Record the offsets of malloc's structures from a libc's debug info.

Usage: record_layouts.py NAME DEBUG-FILE... > data/NAME.json, or record_layouts.py NAME --text FILE for
what gdb's ``ptype /o`` printed before. The result is facts only: structure, member, offset, size, count.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

STRUCTS = ("malloc_state", "_heap_info", "malloc_par", "tcache_perthread_struct", "tcache_entry")
_HEAD = re.compile(r"type = struct (\w+) \{")
_MEMBER = re.compile(r"/\*\s+(\d+)\s+\|\s+(\d+) \*/\s+(?:.*?[\s*])(\w+)(?:\[(\d*)\])?;")
_TOTAL = re.compile(r"total size \(bytes\):\s+(\d+)")


def parse(text: str) -> dict[str, dict]:
    """Return the structures that gdb's ``ptype /o`` printed."""
    structs: dict[str, dict] = {}
    members: dict[str, list] = {}
    name = None
    for line in text.splitlines():
        head, member, total = _HEAD.search(line), _MEMBER.search(line), _TOTAL.search(line)
        if head:
            name, members = head[1], {}
        elif member and name:
            offset, extent, key, count = member.groups()
            members[key] = [int(offset), int(extent), None if count is None else int(count or 0)]
        elif total and name:
            structs[name] = {"size": int(total[1]), "members": members}
            name = None
    return {key: structs[key] for key in STRUCTS if key in structs}


def ask_gdb(path: str, gdb: str = "gdb") -> str:
    """Return what gdb prints of the structures in a debug file."""
    asks = [word for name in STRUCTS for word in ("-ex", f"ptype /o struct {name}")]
    done = subprocess.run([gdb, "-nx", "-q", "-batch", *asks, path], capture_output=True, text=True)
    return done.stdout


def main() -> None:
    """Print the facts of one libc."""
    name, *files = sys.argv[1:]
    from_text = files[0] == "--text"
    text = Path(files[1]).read_text() if from_text else "".join(ask_gdb(path) for path in files)
    rows = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in parse(text).items()]
    joined = ",\n".join(rows)
    print(f'{{"libc": {json.dumps(name)}, "structs": {{\n{joined}\n}}}}')


if __name__ == "__main__":
    main()
