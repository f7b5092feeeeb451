"""A campaign of damaged cores: see ``docs/testing.md``."""
