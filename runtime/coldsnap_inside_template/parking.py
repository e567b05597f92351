"""Waiting to be released: files in the control folder, so that no descriptor is in the image."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coldsnap_inside_template.command import Command
    from coldsnap_inside_template.imports import Loaded

FOLDER = "/run/coldsnap/unit/template"
"""The same in every generation; bound to a folder of the one that this process is in."""
FOLDER_VARIABLE = "COLDSNAP_TEMPLATE_FOLDER"
PARKED, RELEASE = "parked.json", "release.json"
_PERIOD = 0.002
_MAX_RELEASE = 1 << 20


@dataclass(frozen=True)
class Release:
    """What is handed over; placement that no image may hold."""

    env: dict[str, str] = field(default_factory=dict)
    """Variables to set before the engine starts."""


def park(command: Command, loaded: Loaded, seconds: float) -> Release:
    """Say that the template is ready and wait, for as long as it takes.

    Raises:
        SystemExit: what was handed over is not a release.
    """
    folder = os.environ.get(FOLDER_VARIABLE) or FOLDER
    os.makedirs(folder, exist_ok=True)
    mode = "imports" if command.imports else "exec"
    note = {"mode": mode, "reason": command.reason, "seconds": round(seconds, 3), **asdict(loaded)}
    _write(os.path.join(folder, PARKED), note)
    path = os.path.join(folder, RELEASE)
    while not os.path.exists(path):  # written by rename: whole, or not there
        time.sleep(_PERIOD)
    with open(path, "rb") as file:
        return _release(file.read(_MAX_RELEASE))


def _release(data: bytes) -> Release:
    try:
        value = json.loads(data)
        env = dict(value["env"])
    except (ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{RELEASE} is not a release: {error}") from None
    if not all(isinstance(item, str) for pair in env.items() for item in pair):
        raise SystemExit(f"{RELEASE} is not a release: its variables are not text")
    return Release(env)


def _write(path: str, value: dict[str, Any]) -> None:
    with open(f"{path}.tmp", "w", encoding="ascii") as file:
        json.dump(value, file)
    os.replace(f"{path}.tmp", path)
