"""Small facts of one generation that several verbs share, each a file beside its record."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import read_regular, write_atomic
from coldsnap_runtime.timing import boot_id

if TYPE_CHECKING:
    from coldsnap_runtime.unit_record import GenerationPaths

START, FIRST_TOKEN, HOLD, PAYLOAD = "start.json", "first-token.json", "hold.json", "payload.json"
QUIESCED = "quiesced.json"
"""What the engine gave back when it was held still."""
HYDRATED, ACCEPTED = "hydrated.json", "accepted.json"
"""Results of the verbs of these names, so that a later run can report them."""
_MAX_NOTE = 16 << 20


def write_note(paths: GenerationPaths, name: str, value: dict[str, Any]) -> None:
    """Raises ColdSnapError as `write_atomic`. No note outlives the boot that it was written in."""
    data = json.dumps({**value, "boot_id": boot_id()}).encode()
    write_atomic(paths.folder / name, data, sync="none")


def read_note(paths: GenerationPaths, name: str) -> dict[str, Any]:
    """Empty if it is not there, is damaged, or was written before the host's last start."""
    try:
        value = json.loads(read_regular(paths.folder / name, _MAX_NOTE))
    except (ColdSnapError, ValueError):
        return {}
    if not isinstance(value, dict) or value.get("boot_id") != boot_id():
        return {}
    return value


def without_boot(note: dict[str, Any]) -> dict[str, Any]:
    """The note as it was given to `write_note`."""
    return {name: value for name, value in note.items() if name != "boot_id"}


def remove_note(paths: GenerationPaths, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        (paths.folder / name).unlink()
