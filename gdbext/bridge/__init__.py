"""The part of gdbext that imports gdb: ports, sessions, commands. Import has no effect."""
