"""``python3 -m gdbext.cli`` is the ``gdbext`` program."""

import sys

from gdbext.cli.program import main

sys.exit(main())
