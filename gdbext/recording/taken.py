"""What comes of an attempt to take a sample, and how the process that makes it says so: in one line of JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Optional

from gdbext.analysis.growth.sample import Sample
from gdbext.analysis.growth.sampletext import read_sample
from gdbext.errors import GdbextError


@dataclass(frozen=True)
class Taken:
    """What came of an attempt to take a sample or a snapshot.

    :param held: seconds that the process stood still for it, or may have.
    :param sample: None where there is none.
    :param text: the sample as one line.
    :param fault: why there is none.
    """

    held: float
    sample: Optional[Sample] = None
    text: str = ""
    fault: Optional[GdbextError] = None


def taken_text(taken: Taken) -> str:
    """Return what came of an attempt as one line."""
    fault = taken.fault
    error = fault and {"kind": fault.kind, "message": fault.message, "hint": fault.hint}
    return json.dumps({"held": taken.held, "sample": taken.text, "error": error})


def read_taken(text: bytes) -> Taken:
    """Read :func:`taken_text` back.

    :raises ValueError: it is not whole.
    """
    document = json.loads(text)
    if document["error"] is None:
        return Taken(document["held"], read_sample(document["sample"]), document["sample"])
    fault = GdbextError(document["error"]["message"], document["error"]["hint"])
    fault.kind = document["error"]["kind"]
    return Taken(document["held"], fault=fault)
