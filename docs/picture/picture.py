#!/usr/bin/env python3
"""A page of the program as a picture: text with a terminal's colours in, SVG out. README's is made anew, in a folder of
its own, by

    g++ -g -O1 -o gateway DOCS/picture/gateway.cc && (ulimit -c unlimited; ./gateway)      # leaves `core`
    COLUMNS=100 gdbext triage --core core --color=always | DOCS/picture/picture.py 'gdbext triage --core core' \
        >DOCS/picture/page.svg

Text stays text, each piece held to its column whatever font there is; bars are drawn. It is a dark terminal, which can
be read on a light page as on a dark one.
"""

from __future__ import annotations

import re
import sys
from html import escape
from typing import Iterator

WIDTH, HEIGHT, EDGE = 8.4, 19, 18  # of a character, of a line, around the text; in pixels
BACKGROUND, PLAIN = "#0d1117", "#d6dde5"
COLORS = {"31": "#ff7b72", "32": "#56d364", "33": "#e3b341", "34": "#6cb6ff", "35": "#d2a8ff", "36": "#56d4dd"}
COLORS["90"] = "#8b949e"
EIGHTHS = " ▏▎▍▌▋▊▉█"
ESCAPE = re.compile(r"\x1b\[([\d;]*)m")
BAR = re.compile(f"[{EIGHTHS[1:]}]+")


def pieces(line: str) -> Iterator[tuple[int, str, list[str]]]:
    """Give the words of a line that stand together: column, text, the codes of their colour."""
    column, codes = 0, []
    for index, part in enumerate(ESCAPE.split(line)):
        if index % 2:
            codes = [code for code in part.split(";") if code not in ("", "0")]
            continue
        for match in re.finditer(r"\S+(?: \S+)*", part):
            yield column + match.start(), match.group(), codes
        column += len(part)


def draw(column: int, row: int, text: str, codes: list[str]) -> str:
    """Return one piece as SVG."""
    color = next((COLORS[code] for code in codes if code in COLORS), COLORS["90"] if "2" in codes else PLAIN)
    x, y, width = EDGE + column * WIDTH, EDGE + row * HEIGHT, len(text) * WIDTH
    if BAR.fullmatch(text):
        long = sum(map(EIGHTHS.index, text)) / 8 * WIDTH
        return f'<rect x="{x:.1f}" y="{y + 3}" width="{long:.1f}" height="{HEIGHT - 6}" fill="{color}"/>'
    weight = ' font-weight="bold"' if "1" in codes else ""
    place = f'x="{x:.1f}" y="{y + 14}" textLength="{width:.1f}"'
    return f'<text {place} lengthAdjust="spacingAndGlyphs" fill="{color}"{weight}>{escape(text, quote=False)}</text>'


def picture(page: str, title: str) -> str:
    """Return the SVG of a page of text with escapes."""
    rows = page.rstrip("\n").split("\n")
    columns = max(len(ESCAPE.sub("", row)) for row in rows)
    width, height = round(columns * WIDTH) + 2 * EDGE, len(rows) * HEIGHT + 2 * EDGE
    drawn = [draw(column, row, *piece) for row, line in enumerate(rows) for column, *piece in pieces(line)]
    return "\n".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        ' font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="14">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>',
        *drawn,
        "</svg>\n",
    ))  # fmt: skip


if __name__ == "__main__":
    asked = sys.argv[1]
    sys.stdout.write(picture(f"\x1b[2m$\x1b[0m {asked}\n{sys.stdin.read()}", asked))
