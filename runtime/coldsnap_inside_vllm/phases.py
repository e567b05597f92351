"""How long each part of an engine's start takes, told by all its processes into one file."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from typing import Any

FOLDER_VARIABLE = "COLDSNAP_TEMPLATE_FOLDER"
FOLDER = "/run/coldsnap/unit/template"
_FILE = "phases.jsonl"
_MOST_BYTES = 1 << 16
MOST_PHASES = 48


def folder() -> str:
    """What template, engine and unit controller share: private to the generation."""
    return os.environ.get(FOLDER_VARIABLE) or FOLDER


def now() -> float:
    """Seconds of the host's CLOCK_BOOTTIME, the clock of the controller.

    A restored process has a clock that stood still while it was an image: CRIU gives it a time
    namespace.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) - clock_offset()


def clock_offset(path: str = "/proc/self/timens_offsets") -> float:
    """Seconds that the own CLOCK_BOOTTIME is ahead of the host's."""
    try:
        with open(path, encoding="ascii") as file:
            rows = [line.split() for line in file]
    except OSError:
        return 0.0
    return sum(int(row[1]) + int(row[2]) / 1e9 for row in rows if row[:1] == ["boottime"])


@contextlib.contextmanager
def phase(name: str) -> Iterator[dict[str, Any]]:
    """Yields the phase's attributes, to be filled in."""
    attributes: dict[str, Any] = {}
    begin = now()
    try:
        yield attributes
    finally:
        tell(name, begin, attributes)


def tell(name: str, begin: float, attributes: dict[str, Any]) -> None:
    """A phase that began at `begin` and ends now. Nothing fails for want of it."""
    span = {"name": name, "start": begin, "seconds": now() - begin, "attributes": attributes}
    with contextlib.suppress(OSError):
        path = os.path.join(folder(), _FILE)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, json.dumps(span).encode() + b"\n")
        finally:
            os.close(descriptor)


def told() -> list[dict[str, Any]]:
    """All phases so far by their beginnings; one inside another names it as its ``parent``."""
    return nested(_read())


def nested(spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    ordered = sorted(spans, key=lambda span: (span["start"], -span["seconds"]))
    for number, span in enumerate(ordered):
        for outer in reversed(ordered[:number]):
            if span["start"] + span["seconds"] <= outer["start"] + outer["seconds"]:
                span["parent"] = outer["name"]
                break
    return ordered


def _read() -> list[dict[str, Any]]:
    try:
        with open(os.path.join(folder(), _FILE), "rb") as file:
            lines = file.read(_MOST_BYTES).splitlines()
    except OSError:
        return []
    found = []
    for line in lines[:MOST_PHASES]:
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found
