"""The Retry-After header of HTTP answers. Pure, but for the clock."""

from __future__ import annotations

import email.utils
import math
from datetime import UTC, datetime


def seconds_of(header: str | None) -> float | None:
    """Seconds, from either form of the header, a number or a date (RFC 9110, 10.2.3); None when it is neither."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            moment = email.utils.parsedate_to_datetime(header)
        except ValueError:
            return None
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        seconds = (aware - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None
