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
    if package is None:
        spec = importlib.util.spec_from_file_location(
            "gdbext", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        assert spec is not None and spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules["gdbext"] = package
        spec.loader.exec_module(package)
    from gdbext.bridge.register import register

    register(folder)
    if package is None:
        _greet()


def _greet() -> None:
    """Say to a person what to type. gdb has no word for batch: there it asks nothing and pages nothing."""
    import os

    import gdb
    from gdbext.bridge import dependencies, names

    asks = any(gdb.parameter(name) for name in ("confirm", "height", "width"))
    try:
        person = asks and os.isatty(0) and os.isatty(1)
    except OSError:  # closed
        person = False
    if person and not dependencies.find_missing():
        lead = "gx " if "triage" in names.plain_owners else ""
        gdb.write(f"gdbext: {lead}triage says what is wrong and where the memory is; gx commands lists the rest\n")


try:
    _gdbext_load()
finally:
    del _gdbext_load, _greet
    __doc__ = None  # type: ignore[assignment]
