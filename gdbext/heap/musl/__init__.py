"""musl's mallocng (1.2.1 to 1.2.6): groups of slots, described by metas in areas of their own; and its older malloc."""
