"""What the user does wrong: one line that says what and what to do, the error in the envelope, no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.gdb.answers import ask
from tests.gdb.bridged import LOADED  # noqa: F401  (kept beside the other gdb tests' helpers)
