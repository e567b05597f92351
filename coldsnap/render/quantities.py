"""Sizes, rates, durations, digests, times: one way to write each."""

from __future__ import annotations

import time
from typing import Final

_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_MINUTE: Final = 60.0
_HOUR: Final = 3600.0
_DAY: Final = 86400.0
_TEN: Final = 10
_STEP: Final = 1024


def size(count: float | None) -> str:
    """Bytes with a binary unit: ``812 B``, ``14 MiB``, ``1.9 GiB``; ``-`` when unknown."""
    if count is None:
        return "-"
    value = float(count)
    unit = 0
    while abs(value) >= _STEP and unit < len(_BINARY) - 1:
        value /= _STEP
        unit += 1
    # 1023.97 MiB would read "1024 MiB"; the next unit says it better.
    if round(abs(value)) >= _STEP and unit < len(_BINARY) - 1:
        value /= _STEP
        unit += 1
    shown = f"{value:.1f}" if unit and abs(value) < 100 else f"{value:.0f}"  # noqa: PLR2004
    return f"{shown.removesuffix('.0')} {_BINARY[unit]}"


def size_pair(done: int, total: int | None) -> str:
    """Progress in one unit: ``1.4/1.9 GiB``; ``1.4 GiB`` when the total is unknown."""
    if not total:
        return size(done)
    scale, unit = 1.0, 0
    while total / scale >= _STEP and unit < len(_BINARY) - 1:
        scale *= _STEP
        unit += 1
    places = 1 if unit and total / scale < 100 else 0  # noqa: PLR2004
    return f"{done / scale:.{places}f}/{total / scale:.{places}f} {_BINARY[unit]}"


def rate(per_second: float) -> str:
    """Decimal units, as links and disks are sold: ``412 MB/s``, ``1.9 GB/s``."""
    for unit, scale in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if per_second >= scale:
            value = per_second / scale
            return f"{value:.1f} {unit}" if value < _TEN else f"{value:.0f} {unit}"
    return f"{per_second:.0f} B/s"


def duration(seconds: float | None) -> str:
    """``42 ms``, ``3.1 s``, ``48 s``, ``2 min 5 s``, ``3 h 12 min``; ``-`` when unknown."""
    if seconds is None:
        return "-"
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < _MINUTE * 2:
        return _seconds(seconds)
    if seconds < _HOUR:
        return _two(seconds, _MINUTE, "min", 1.0, "s")
    if seconds < _DAY:
        return _two(seconds, _HOUR, "h", _MINUTE, "min")
    return _two(seconds, _DAY, "d", _HOUR, "h")


def fine(seconds: float) -> str:
    """As `duration`, with the places that measurements are compared by: ``0.52 s``, ``51.4 s``."""
    if 0.0995 <= seconds < _TEN:  # noqa: PLR2004 - below, milliseconds are enough
        return f"{seconds:.2f} s"
    return f"{seconds:.1f} s" if _TEN <= seconds < _MINUTE * 2 else duration(seconds)


def _seconds(seconds: float) -> str:
    if seconds < 0.0995:  # noqa: PLR2004 - below, one place would lose too much
        return f"{seconds * 1000:.0f} ms"
    shown = f"{seconds:.1f}".removesuffix(".0") if seconds < _TEN else f"{seconds:.0f}"
    return f"{shown} s"


def _two(seconds: float, large: float, large_name: str, small: float, small_name: str) -> str:
    whole = round(seconds / small)
    per = round(large / small)
    head, tail = divmod(whole, per)
    return f"{head} {large_name} {tail} {small_name}" if tail else f"{head} {large_name}"


def clock(seconds: float) -> str:
    """A count-down: ``0:01``, ``9:58``, ``1:02:03``."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"


def short_digest(digest: str, keep: int = 12) -> str:
    """``sha256:51c0a1b2c3d4..``; other text is returned as it is."""
    algorithm, colon, hexes = digest.partition(":")
    if not colon or len(hexes) <= keep or not all(c in "0123456789abcdef" for c in hexes):
        return digest
    return f"{algorithm}:{hexes[:keep]}.."


def ago(then: float, now: float | None = None) -> str:
    """``12 s ago``, ``2 d ago``: the larger unit alone."""
    seconds = max(0.0, (time.time() if now is None else now) - then)
    for scale, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= scale:
            return f"{int(seconds // scale)} {name} ago"
    return f"{int(seconds)} s ago"


def local_time(unix: float) -> str:
    """``2026-11-30 17:24:36`` in the user's time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix))


def times(ratio: float) -> str:
    """A speed-up: ``18x``, ``4.2x``."""
    return f"{ratio:.0f}x" if ratio >= _TEN else f"{ratio:.1f}x"


def plural(count: int, noun: str, plural_noun: str = "") -> str:
    """``1 host``, ``2 hosts``."""
    return f"{count} {noun if count == 1 else plural_noun or noun + 's'}"
