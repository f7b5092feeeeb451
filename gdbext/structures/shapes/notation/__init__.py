"""How shape files write things: paths, expressions, TOML itself."""
