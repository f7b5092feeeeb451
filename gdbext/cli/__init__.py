"""The ``gdbext`` program: one command over one core or process, from a shell, outside gdb.

It runs on any Python from 3.9 with nothing but the standard library, starts gdb in batch, and turns
what comes back into text or JSON and an exit status. It imports leaves alone (``errors``, ``report``, ``exchange``).
"""
