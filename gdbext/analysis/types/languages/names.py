"""Names of C++: mangled ones read, long ones made readable.

Itanium C++ ABI, 5.1 (mangling), as far as names of types are nested names without templates; the debugger's demangler
does the rest.
"""

from __future__ import annotations

import re
from typing import List, Optional, Tuple

_SOURCE_NAME = re.compile(r"(\d+)")
_ABBREVIATED = {"St": "std", "Ss": "std::string", "Sa": "std::allocator"}
_STRING = re.compile(r"std::(?:__cxx11::)?basic_string<char, std::char_traits<char>, std::allocator<char> ?>")
# Template arguments that are what the standard takes when none is given.
_DEFAULTS = re.compile(r"std::(allocator|less|hash|equal_to|char_traits|default_delete)<|\(__gnu_cxx::_Lock_policy\)")
_INNER = re.compile(r"std::(?:__cxx11|__1|__debug)::")
_CONST_BEHIND = re.compile(r"^(.+[^*&\s]) const$")


def find_plain_name(mangled: str) -> Optional[str]:
    """Return the name of a type that is mangled without templates ("N4shop4ItemE": "shop::Item"), or None.

    :param mangled: as in type information, without ``_ZTS``.
    """
    text = mangled[1:] if mangled.startswith("*") else mangled
    if text.startswith("N") and text.endswith("E"):
        text = text[1:-1]
    parts: List[str] = []
    while text:
        taken = _take_name(text)
        if taken is None:
            return None
        parts.append(taken[0])
        text = taken[1]
    return "::".join(parts) or None


def _take_name(text: str) -> Optional[Tuple[str, str]]:
    if text[:2] in _ABBREVIATED:
        return _ABBREVIATED[text[:2]], text[2:]
    match = _SOURCE_NAME.match(text)
    if match is None or len(match[1]) > 5:
        return None
    end = match.end() + int(match[1])
    name = text[match.end() : end]
    if end > len(text) or not name.isidentifier():
        return None
    return ("(anonymous namespace)" if name.startswith("_GLOBAL__N") else name), text[end:]


def template_arguments(name: str) -> List[str]:
    """Return the arguments of the last template of a name: of ``std::map<int, char>`` ``int`` and ``char``.

    :return: none where the name is no template's.
    """
    first = find_opening(name)
    return [] if first is None else split_arguments(name[first + 1 : name.rstrip().rindex(">")])


def find_opening(name: str) -> Optional[int]:
    """Return where the ``<`` is that the last ``>`` of a name closes, or None when it does not end in one."""
    name = name.rstrip()
    if not name.endswith(">"):
        return None
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        depth += {">": 1, "<": -1}.get(name[at], 0)
        if not depth:
            return at
    return None


def split_arguments(text: str) -> List[str]:
    """Return the parts between the outermost commas."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(text):
        depth += 1 if letter in "<([{" else -1 if letter in ">)]}" else 0
        if letter == "," and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    return [part for part in (*parts, text[begin:].strip()) if part]


def find_template(text: str, name: str) -> Optional[str]:
    """Return the first use of a template in a text, with its arguments, or None.

    :param name: with its ``<``: "std::_List_node<".
    """
    first, depth = text.find(name), 0
    if first < 0:
        return None
    for at in range(first + len(name) - 1, len(text)):
        depth += {"<": 1, ">": -1}.get(text[at], 0)
        if not depth:
            return text[first : at + 1]
    return None


def readable(name: str) -> str:
    """Return a type's name as a programmer writes it: without inner namespaces and default arguments.

    "std::vector<std::__cxx11::basic_string<…>, std::allocator<…> >" becomes "std::vector<std::string>".
    """
    name = _STRING.sub("std::string", name)
    return _shortened(_INNER.sub("std::", name))


def _shortened(name: str) -> str:
    name = name.strip()
    first = find_opening(name)
    if first is None:
        behind = re.match(r"^(.*>)( const)?(\s*[*&]+.*|::.*)$", name)
        if behind is None:
            return _const_first(name)
        return _shortened(behind[1]) + (behind[2] or "") + behind[3]
    parts = split_arguments(name[first + 1 : name.rindex(">")])
    while len(parts) > 1 and _DEFAULTS.match(parts[-1]):
        parts.pop()
    return f"{name[:first]}<{', '.join(_shortened(part) for part in parts)}>"


def _const_first(name: str) -> str:
    match = _CONST_BEHIND.match(name)
    return f"const {match[1]}" if match else name
