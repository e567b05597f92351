"""What a parked template, its engine and this program leave for each other, and where."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import read_regular

if TYPE_CHECKING:
    from pathlib import Path

    from coldsnap_runtime.unit_record import GenerationPaths, UnitRecord

DRIVER = "n580"
FOLDER = "template"
"""In the control folder, and in the generation's: the dump of the parked template."""
PARKED, RELEASE = "parked.json", "release.json"
STARTUP_PLAN, GIVEN_PLAN = "startup-plan.json", "given-plan.json"
"""As the engine found it out; as it was captured elsewhere."""
_MAX_FILE = 1 << 20


def is_template(record: UnitRecord) -> bool:
    return bool(record.launch.get("template"))


def template_folder(paths: GenerationPaths) -> Path:
    """Where the dump of the parked template lies until a capture takes it."""
    return paths.folder / FOLDER


def told_folder(paths: GenerationPaths) -> Path:
    folder = paths.control / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def read_told(paths: GenerationPaths, name: str) -> dict[str, Any]:
    """What template or engine left in their folder; empty for what is not a JSON object."""
    try:
        value = json.loads(read_regular(paths.control / FOLDER / name, _MAX_FILE))
    except (ColdSnapError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
