"""Who owns which command name.

gdb lets the last registration of a name win silently, sub-commands and all; pwndbg refuses to load
when a name that it wants exists. So a name is looked up before it is taken. A new name also makes
abbreviations ambiguous ("wa" of ``watch`` beside ``walklist``): those are looked up too, and restored.
"""

from __future__ import annotations

from typing import Iterable, Optional

import gdb

# Filled by registration, for ``gx commands``.
plain_names: set[str] = set()
plain_owners: dict[str, str] = {}


def find_help(name: str) -> Optional[str]:
    """Return gdb's help for a name or an abbreviation, or None when gdb knows no such command."""
    try:
        return str(gdb.execute(f"help {name}", to_string=True))
    except gdb.error:  # undefined or ambiguous
        return None


def find_owner(name: str) -> Optional[str]:
    """Return who answers to a name now ("gdb or another script"), or None when it is free."""
    return None if find_help(name) is None else "gdb or another script"


def find_command(abbreviation: str) -> Optional[str]:
    """Return the full name of the command that an abbreviation reaches, or None."""
    text = find_help(abbreviation)
    if text is None:
        return None
    listed = gdb.execute(f"complete {abbreviation}", to_string=True).splitlines()
    candidates = [name for name in listed if name.startswith(abbreviation) and " " not in name]
    if abbreviation in candidates:
        return abbreviation
    return next((name for name in candidates if find_help(name) == text), None)


class Abbreviations:
    """What the proper prefixes of some names reach before the names exist.

    :param names: about to be registered.
    """

    def __init__(self, names: Iterable[str]) -> None:
        prefixes = {name[:end] for name in names for end in range(1, len(name))}
        self._reached = {prefix: find_command(prefix) for prefix in prefixes}

    def restore(self) -> None:
        """Make every prefix reach again what it reached, by aliases that stay out of completion."""
        for prefix in sorted(self._reached, key=len, reverse=True):
            command = self._reached[prefix]
            if command is not None and command != prefix and find_command(prefix) != command:
                gdb.execute(f"alias -a {prefix} = {command}", to_string=True)
