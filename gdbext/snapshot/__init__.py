"""A copy of a living process: room first, then a pause as short as copying allows, then a core of what was copied."""
