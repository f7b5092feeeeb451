"""``python3 -m gdbext.cli`` is the ``gdbext`` program."""

import signal

signal.signal(signal.SIGPIPE, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of what is imported

from gdbext.cli.program import run  # noqa: E402

run()
