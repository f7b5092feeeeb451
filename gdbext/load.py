"""What gdb sources: ``source …/gdbext/load.py`` loads the package from this folder and registers it.

gdb runs a sourced file inside ``__main__``, which belongs to the user: nothing is left there, and
``sys.path`` stays as it was. Sourcing twice does nothing the second time. One line says what to type, where a person
can read it.
"""


def _gdbext_load() -> None:
    import importlib.util
    import os
    import sys

    # Not __file__: when another script sources this one, that names the other.
    folder = os.path.dirname(os.path.realpath(sys._getframe().f_code.co_filename))
    if sys.version_info < (3, 9):
        raise RuntimeError("gdbext: gdb's Python is older than 3.9; use a gdb that embeds 3.9 or later")
    package = sys.modules.get("gdbext")
    first = package is None
    if package is None:
        spec = importlib.util.spec_from_file_location(
            "gdbext", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        assert spec is not None and spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules["gdbext"] = package
        spec.loader.exec_module(package)
    from gdbext.bridge.register import greet, register

    register(folder)
    if first:
        greet()


try:
    _gdbext_load()
finally:
    del _gdbext_load
    __doc__ = None  # type: ignore[assignment]
