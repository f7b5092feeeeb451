"""Shapes of known containers, as TOML files; ``gdbext.structures.library`` reads them."""
