"""The questions that have commands of their own."""

from __future__ import annotations

import re

from gdbext.errors import UsageError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SPAN = re.compile(r"(\d+)([smhdw])")

# Causes by the number of cores; each core counts once, for its first cause.
TOP = """
SELECT count(*) AS cores,
       count(DISTINCT host) AS hosts,
       count(DISTINCT build_id) AS builds,
       strftime(min(taken), '%Y-%m-%d %H:%M') AS first,
       strftime(max(taken), '%Y-%m-%d %H:%M') AS last,
       signature,
       program,
       coalesce(cause, CASE WHEN error_kind IS NULL THEN 'nothing found' ELSE 'no answer: ' || error_kind END) AS cause
FROM cores GROUP BY signature, program, 8
ORDER BY signature IS NULL, cores DESC, last DESC, signature, program, cause
LIMIT ?
"""

# Causes, of whatever rank, whose first core is not older than so many seconds before now.
NEW = """
SELECT count(DISTINCT core) AS cores,
       count(DISTINCT host) AS hosts,
       strftime(min(taken), '%Y-%m-%d %H:%M') AS first,
       causes.signature AS signature,
       any_value(program) AS program,
       any_value(causes.cause) AS cause,
       arg_min(path, time) AS example
FROM causes JOIN cores USING (core)
GROUP BY causes.signature HAVING min(time) >= ?
ORDER BY min(time), signature
"""


def parse_span(text: str) -> int:
    """Return the seconds that "36h", "1d" or "2w" mean.

    :raises UsageError: when it is none of these.
    """
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"--since: {text!r} is no time", "write a number with s, m, h, d or w: 36h, 1d, 2w")
    return int(match[1]) * _UNITS[match[2]]
