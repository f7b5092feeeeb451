"""What is found besides the heaps, by searches that may end early: findings, and what was not examined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from gdbext.analysis.locks.unowned import UnownedWaits
from gdbext.analysis.missing import Unexamined
from gdbext.report import Evidence, Finding


@dataclass(frozen=True)
class Beyond:
    """What was found besides the heaps.

    :param unexamined: what was not, as far as it may hide a finding.
    :param waits: threads that wait where no lock names the owner, as far as they belong on the page.
    """

    findings: Sequence[Finding] = ()
    evidence: Sequence[Evidence] = ()
    unexamined: Sequence[Unexamined] = ()
    notes: Sequence[str] = ()
    waits: Sequence[UnownedWaits] = ()

    @property
    def complete(self) -> bool:
        """Whether everything was examined."""
        return not self.unexamined


NOTHING = Beyond()


def joined(*parts: Beyond) -> Beyond:
    """Return several searches as one."""
    return Beyond(
        [finding for part in parts for finding in part.findings],
        [evidence for part in parts for evidence in part.evidence],
        [one for part in parts for one in part.unexamined],
        [note for part in parts for note in part.notes],
        [group for part in parts for group in part.waits],
    )
