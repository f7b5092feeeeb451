"""Many cores: rows of each in a dataset, and questions over all of them. See ``docs/fleet.md``."""
