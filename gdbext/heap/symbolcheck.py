"""Whether what a debugger says of a name holds for the target: the same for every allocator."""

from __future__ import annotations

from typing import Optional

from gdbext.debuginfo import Symbol
from gdbext.report import Problem
from gdbext.target import Target


def find_disbelief(target: Target, symbol: Symbol) -> Optional[Problem]:
    """Return why a symbol is not believed, or None when it is.

    It counts only when its file has the build-id of the module that the target has mapped there.
    """
    where = f"symbol {symbol.name} at {symbol.address:#x} not believed"
    module = target.find_module(symbol.address)
    if module is None:
        return Problem("debug-info", symbol.address, f"{where}: no module of the target is mapped there")
    if module.build_id is None:
        message = f"{where}: the target holds no build-id of {module.path}"
        return Problem("no-build-id", symbol.address, message)
    if symbol.build_id is None:
        return Problem("no-build-id", symbol.address, f"{where}: the file it is from has no build-id")
    if symbol.build_id != module.build_id:
        ours, theirs = symbol.build_id, module.build_id
        message = f"{where}: it is from build-id {ours}, the target has {module.path} with build-id {theirs}"
        return Problem("wrong-debug-info", symbol.address, message)
    return None
