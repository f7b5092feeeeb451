"""gdbext: heap and data-structure forensics in gdb, on live processes and cores."""

__version__ = "0.1.0"
