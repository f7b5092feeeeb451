"""Which findings are worth a user's time: the settings ``min-finding-*``.

``docs/design.md``, Decisions: a finding is silent below the bytes *and* below the share of the process's writable
memory that is resident, or in the core, and always below the floor. What was not examined counts from the same
thresholds on: less cannot hide a finding.
"""

from __future__ import annotations

from dataclasses import dataclass

from gdbext.memory import for_each_written
from gdbext.memory.intervals import columns
from gdbext.memory.live.procmem import ProcessMemory
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
    :param whole: bytes of the target's writable memory that are resident, or in the core; reservations do not count.
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


def thresholds(settings: Settings, target: Target) -> Thresholds:
    """Return the thresholds for a target; a setting that is not given has its default."""
    chosen = {**DEFAULTS, **settings}
    return Thresholds(
        chosen["min-finding-bytes"],
        chosen["min-finding-share"],
        chosen["min-finding-floor"],
        _writable_bytes(target),
    )


def _writable_bytes(target: Target) -> int:
    """Return what the target's writable memory costs: what was never touched costs nothing."""
    writable = [region for region in target.memory.regions() if region.writable and region.source == "memory"]
    if isinstance(target.memory, ProcessMemory) and target.memory.presence.known:
        return target.memory.presence.resident.within(*columns([(one.start, one.end) for one in writable]))
    return sum(
        end - start for one in writable for start, end in for_each_written(target.memory, one.start, one.end)
    )
