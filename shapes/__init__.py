"""Shapes of known containers, as TOML files; ``gdbext.structures.shapes.library`` reads them."""
