"""Analyses of the neutral heap model: a ``Target`` and its heaps in, a report out; pure.

Nothing here knows an allocator; what only one of them can say is in ``gdbext.heap``.
"""
