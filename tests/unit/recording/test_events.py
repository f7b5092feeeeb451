"""Events are what docs/json.md says of them."""

from __future__ import annotations

import re

from gdbext.recording.events import DETAILS
from tests.support.cache import CHECKOUT


def test_the_reference_has_every_event_with_its_members():
    text = (CHECKOUT / "docs" / "json.md").read_text(encoding="utf-8").partition("\n## Recordings\n")[2]
    rows = re.findall(r"^\| `([a-z-]+)` \| (`[^|]*`) \|", text.partition("\n## ")[0], re.MULTILINE)
    assert {kind: set(re.findall(r"`(\w+)`", members)) for kind, members in rows} == {
        kind: set(details) for kind, details in DETAILS.items()
    }
