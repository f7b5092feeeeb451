"""The memory of a living process, and what of it is there."""
