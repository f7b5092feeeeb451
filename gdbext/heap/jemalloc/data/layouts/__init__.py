"""Layouts by version: see ``gdbext.heap.jemalloc.layouts``."""
