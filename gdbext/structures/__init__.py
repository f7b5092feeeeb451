"""Linked structures: lists, hash bins, open addressing, trees, and the shapes that describe them.

Three forms, each made from the one before:

* a *shape* (``shape.py``): a TOML file, written in member names or raw offsets;
* a *bound shape* (``bind.py``): names replaced by offsets, by the types of one program;
* a *table* (``model.py``, made by ``opening.py``): a bound shape on one object, its sizes and masks read.

Walkers (``lists``, ``bins``, ``probes``, ``trees``) see tables and memory only.
"""
