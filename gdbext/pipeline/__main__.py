"""``python3 -m gdbext.pipeline`` is the ``gdbext`` program."""

import sys

from gdbext.pipeline.cli import main

sys.exit(main())
