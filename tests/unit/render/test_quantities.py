"""Sizes, durations, digests, colour and columns."""

from __future__ import annotations

import io

import pytest

from coldsnap.render import quantities as q
from coldsnap.render.columns import Cell, pairs, table
from coldsnap.render.palette import ColorMode, Palette, clean, wants_color


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (None, "-"), (0, "0 B"), (812, "812 B"), (1024, "1 KiB"), (1536, "1.5 KiB"),
        (14 << 20, "14 MiB"), (2040109465, "1.9 GiB"), (16428185190, "15.3 GiB"),
        ((1 << 30) - 1, "1 GiB"), (1 << 50, "1 PiB"), (1 << 60, "1024 PiB"),
    ],
)  # fmt: skip
def test_size(count, shown) -> None:
    assert q.size(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"), (0, "0 ms"), (0.042, "42 ms"), (0.0996, "0.1 s"), (3, "3 s"), (3.14, "3.1 s"),
        (9.97, "10 s"), (48.2, "48 s"), (125, "2 min 5 s"), (120, "2 min"), (11520, "3 h 12 min"),
        (187200, "2 d 4 h"), (-3, "-3 s"), (3599.9, "60 min"),
    ],
)  # fmt: skip
def test_duration(seconds, shown) -> None:
    assert q.duration(seconds) == shown


def test_small_words() -> None:
    assert q.size_pair(1503238553, 2040109465) == "1.4/1.9 GiB"
    assert q.size_pair(100, None) == "100 B"
    assert q.rate(412e6) == "412 MB/s"
    assert q.rate(1.94e9) == "1.9 GB/s"
    assert q.clock(598) == "9:58"
    assert q.clock(3723) == "1:02:03"
    assert q.short_digest("sha256:" + "ab" * 32) == "sha256:abababababab.."
    assert q.short_digest("registry:5000/x") == "registry:5000/x"
    assert q.ago(0, now=7300) == "2 h ago"
    assert q.times(18.2) == "18x"
    assert q.times(4.21) == "4.2x"
    assert q.plural(1, "host") == "1 host"
    assert q.plural(2, "entry", "entries") == "2 entries"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("mode", "terminal", "env", "expected"),
    [
        (ColorMode.AUTO, True, {}, True),
        (ColorMode.AUTO, False, {}, False),
        (ColorMode.AUTO, True, {"NO_COLOR": "1"}, False),
        (ColorMode.AUTO, True, {"NO_COLOR": ""}, True),
        (ColorMode.AUTO, False, {"FORCE_COLOR": "1"}, True),
        (ColorMode.AUTO, False, {"FORCE_COLOR": "0"}, False),
        (ColorMode.AUTO, False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (ColorMode.ALWAYS, False, {"NO_COLOR": "1"}, True),
        (ColorMode.NEVER, True, {"FORCE_COLOR": "1"}, False),
        (ColorMode.AUTO, True, {"TERM": "dumb"}, False),
    ],
)
def test_who_decides_about_colour(mode, terminal, env, expected) -> None:
    assert wants_color(mode, Terminal() if terminal else io.StringIO(), env) is expected


def test_columns_are_aligned_whatever_their_colour() -> None:
    rows = [("a", Cell("yes", "good"), "1"), ("long name", "no", "100")]
    shown = table(("HOST", "OK", "SIZE"), rows, Palette(True), right=(2,))
    plain = table(("HOST", "OK", "SIZE"), rows, right=(2,))
    assert plain.splitlines() == [
        "HOST       OK   SIZE",
        "a          yes     1",
        "long name  no    100",
    ]
    assert clean(shown.replace("\n", " ")) != shown
    assert pairs([("name", "x"), ("digest", "y")]).splitlines() == ["name    x", "digest  y"]
    assert table((), []) == ""
