"""The version, for answers and packages."""

__version__ = "0.1.0"
