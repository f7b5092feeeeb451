"""The documents: what they link to is there, and those for the first minute keep to a screen or a page."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORDS = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
DOCUMENTS = [path for folder in (".", "docs", "docs/adr", "bench") for path in sorted((ROOT / folder).glob("*.md"))]
LINK = re.compile(r"\]\((?!https?:)([^)\s#]*)#?([^)\s]*)\)")


def anchors(path):
    """Return the anchors of a document's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    made: Counter[str] = Counter()
    for heading in re.findall(r"^#+ +(.*)$", text, re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        yield f"{name}-{made[name]}" if made[name] else name
        made[name] += 1


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document):
    for name, anchor in LINK.findall(document.read_text(encoding="utf-8")):
        place = document.parent / name if name else document
        assert place.exists(), name
        assert not anchor or anchor in anchors(place), f"{name}#{anchor}"


def test_the_readme_is_a_page_and_its_picture_small():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") < 150
    (picture,) = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", text)
    assert (ROOT / picture).stat().st_size < 30_000


def test_the_cheat_sheet_is_a_screen():
    lines = (ROOT / "docs" / "cheatsheet.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 60 and max(map(len, lines)) <= 100


def test_every_record_is_short_whole_and_in_the_list():
    index = (ROOT / "docs" / "adr" / "README.md").read_text(encoding="utf-8")
    assert RECORDS
    for number, record in enumerate(RECORDS, 1):
        text = record.read_text(encoding="utf-8")
        title = re.fullmatch(r"# (\d+)\. (.*)", text.splitlines()[0])
        assert title and int(title[1]) == int(record.name[:4]) == number
        assert f"| {number} | [{title[2]}]({record.name}) |" in index
        assert re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
        assert text.count("\n") <= 30
