"""ELF files and cores."""
