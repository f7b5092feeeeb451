"""A copy of the process that is to be examined, in memory that ends with the program: the process goes on at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import Any, Iterator, Mapping, Optional, Sequence, Tuple

from gdbext.cli.answer import error_of, signal_name
from gdbext.cli.children import await_end, end_group, started
from gdbext.cli.ending import owned
from gdbext.files import private
from gdbext.grammar.exchange import Copy, find_copy
from gdbext.starting.failures import GdbFailedError, InternalError, TimeOutError, not_run
from gdbext.starting.gdbjob import LOADER, diagnostics, guarded_environment

# As load.py does it: nothing of the checkout enters sys.path.
_COPYING = """
import sys, importlib.util as util
spec = util.spec_from_file_location("gdbext", sys.argv[1] + "/__init__.py", submodule_search_locations=[sys.argv[1]])
sys.modules["gdbext"] = util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["gdbext"])
from gdbext.snapshot.child import copy
copy(*sys.argv[1:])
"""


@contextmanager
def room() -> Iterator[int]:
    """Have an empty file in memory, which nothing of is left when the program ends."""
    with owned(lambda: os.memfd_create("gdbext-snapshot", os.MFD_CLOEXEC), os.close) as descriptor:
        yield descriptor


def copy_process(pid: int, folder: str, descriptor: int, wishes: Mapping[str, Any], deadline: Optional[float]) -> Copy:
    """Copy a process to a file in memory.

    :param folder: for what is said of it.
    :param wishes: as ``gdbext.snapshot.taking.Wishes`` has them, by name.
    :param deadline: in seconds of ``time.monotonic``, or None.
    :raises GdbextError: there is no copy, and the process goes on.
    """
    passed = tuple(one for one in (descriptor, wishes.get("disk")) if one is not None)
    words = (str(LOADER.parent), folder, json.dumps(dict(wishes)), str(descriptor), str(pid))
    status, said = _run([sys.executable, "-I", "-S", "-c", _COPYING, *words], folder, passed, deadline)
    found = find_copy(folder)
    if found is None and status is None:
        raise TimeOutError("the time was up before the process was copied", "--timeout gives more")
    if found is None and status is not None and status < 0:
        raise GdbFailedError(f"what copies the process was ended by {signal_name(-status)}")
    if found is None:
        raise InternalError("gdbext failed while it copied the process", f"please report: {' '.join(said[-3:])}")
    if found.error is not None:
        raise error_of(found.error)
    return found


def _run(
    line: Sequence[str], folder: str, passed: Tuple[int, ...], deadline: Optional[float]
) -> Tuple[Optional[int], Sequence[str]]:
    """Run what copies; return its exit status, None where it was ended by us, and what it said."""
    said = os.path.join(folder, "copying")
    how: Mapping[str, Any] = {"pass_fds": passed, "stdin": subprocess.DEVNULL, "start_new_session": True}
    left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
    with open(said, "wb", opener=private) as out:
        try:
            with started(line, end_group, env=guarded_environment(os.environ), stdout=out, stderr=out, **how) as child:
                ended = await_end(child, left)
            status = child.wait()
        except OSError as error:
            raise not_run(line[0], error) from None
    with open(said, encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        return status if ended else None, diagnostics(file)
