"""One core, asked on standard input; its rows on standard output. What a worker on another machine starts.

Run as ``python -m gdbext.fleet.single``.
"""

from __future__ import annotations

import json
import os
import resource
import sys

import gdbext
from gdbext import _mount
from gdbext.starting import dependencies


def main() -> None:
    """Answer."""
    question = json.load(sys.stdin)
    package = os.path.dirname(os.path.abspath(gdbext.__file__))
    _mount.mount(package)
    dependencies.locate(package)
    dependencies.load(*dependencies.NEEDED)
    from gdbext.fleet.child import answer, limit_memory
    from gdbext.fleet.examine import How, examine
    from gdbext.fleet.sources import Source
    from gdbext.fleet.stores.fetching import examine_there

    source, how = Source(**question["source"]), How(**question["how"])
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    limit_memory(question["memory"])
    json.dump(answer(lambda: examine_there(examine, source, how)), sys.stdout)


if __name__ == "__main__":
    main()
