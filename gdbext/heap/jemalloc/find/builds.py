"""Builds of jemalloc whose symbols are shipped, because the distribution strips them: by build-id.

``data/builds.json``: {build-id: {"version", "package", "symbols": {name without prefix: address in the file}}}.
"""

from __future__ import annotations

import json
import os
from functools import lru_cache
from typing import Any, Mapping, Optional

from gdbext.heap.jemalloc.find.named import Globals
from gdbext.heap.jemalloc.layouts import for_version
from gdbext.memory import view
from gdbext.memory.elf.elffile import find_image
from gdbext.process import Module
from gdbext.target import Target

_TABLE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "data", "builds.json")


@lru_cache(maxsize=None)
def known_builds() -> Mapping[str, Any]:
    """Return the shipped table."""
    with open(_TABLE, encoding="utf-8") as stream:
        table: Mapping[str, Any] = json.load(stream)
    return table


def find_builds(target: Target, known: set[int]) -> list[Globals]:
    """Return the modules of the target that are in the shipped table.

    :param known: base addresses of modules that need no looking at.
    """
    modules = [
        module for module in target.modules if module.base not in known and module.build_id in known_builds()
    ]
    found = [_globals(target, module) for module in modules]
    return [one for one in found if one is not None]


def _globals(target: Target, module: Module) -> Optional[Globals]:
    image = find_image(lambda at, size: view(target.memory, at, size), module.base, target.abi.page_size)
    if image is None:
        return None
    build = known_builds()[str(module.build_id)]
    symbols = {name: image.bias + address for name, address in build["symbols"].items()}
    return Globals(
        None, module, symbols, f"build-id of {build['package']}", tuple(for_version(build["version"]))
    )
