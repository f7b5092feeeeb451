"""Which findings are worth a user's time: the settings ``min-finding-*``.

``docs/design.md``, Decisions: a finding is silent below the bytes *and* below the share of what the process costs,
and always below the floor. What was not examined counts from the same thresholds on: less cannot hide a finding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from gdbext.analysis.residency import Residency
from gdbext.report import Finding, Settings
from gdbext.target import Target

DEFAULTS: Settings = {
    "min-finding-bytes": 16 << 20,
    "min-finding-share": 20,
    "min-finding-floor": 4 << 20,
}


@dataclass(frozen=True)
class Thresholds:
    """The bytes from which a cost is reported.

    :param share: per cent of ``whole``.
    :param whole: bytes of the target's writable memory, as far as it costs anything: see :func:`thresholds`.
    """

    bytes: int
    share: int
    floor: int
    whole: int

    def reached(self, cost: int) -> bool:
        """Return whether that many bytes are worth a finding, or may hide one."""
        large = cost >= self.bytes or 100 * cost >= self.share * self.whole
        return large and cost >= self.floor

    def keep(self, finding: Finding) -> bool:
        """Return whether a finding is reported: always when bytes are not its measure."""
        return finding.kind == "corruption" or finding.bytes is None or self.reached(finding.bytes)


def thresholds(settings: Settings, target: Target, residency: Optional[Residency] = None) -> Thresholds:
    """Return the thresholds for a target; a setting that is not given has its default.

    :param residency: of a process, what of its memory is in RAM; without it, and of a core, the writable mappings count
        that are there.
    """
    chosen = {**DEFAULTS, **settings}
    if residency is None:
        regions = target.memory.regions()
        whole = sum(region.size for region in regions if region.writable and region.source != "absent")
    else:
        whole = sum(use.rss for use in residency.mappings())
    return Thresholds(
        chosen["min-finding-bytes"], chosen["min-finding-share"], chosen["min-finding-floor"], whole
    )
