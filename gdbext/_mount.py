"""Makes ``commands/``, ``printers/`` and ``shapes/`` importable as ``gdbext.commands`` and so on.

A wheel holds them inside the package. In a checkout they lie beside it, under names that any other
script in gdb's one interpreter may use; so the checkout's root never enters ``sys.path``, and a
finder that stands last in ``sys.meta_path`` answers for exactly these names.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from typing import Optional, Sequence

MOUNTED = ("commands", "printers", "shapes")


class CheckoutFinder:
    """Finds the packages beside ``gdbext`` in a checkout.

    :param root: the folder that holds them.
    """

    def __init__(self, root: str) -> None:
        self.folders = {f"gdbext.{name}": os.path.join(root, name) for name in MOUNTED}

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: object = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        """Return the spec of one of these packages; None for every other name."""
        folder = self.folders.get(name)
        if folder is None:
            return None
        file = os.path.join(folder, "__init__.py")
        return importlib.util.spec_from_file_location(name, file, submodule_search_locations=[folder])


def mount(package_folder: str) -> None:
    """Make them importable; does nothing where they are inside the package already.

    :param package_folder: where ``gdbext/__init__.py`` is.
    """
    if os.path.isdir(os.path.join(package_folder, "commands")):
        return
    # By name: a class from before a reload is not this class.
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "CheckoutFinder"]
    sys.meta_path.append(CheckoutFinder(os.path.dirname(package_folder)))
