"""Pins: a restored unit holds on to the artifact that it was restored from.

One file per pin, named by its holder (``u0.12``: unit and generation). A pinned artifact is
never collected, even after it was deleted from the index.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from coldsnap.artifact import canonical
from coldsnap.artifact.decode import Record, decode, parse
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import fsync_dir, read_regular, write_atomic
from coldsnap.artifact.oci.layout import read_only
from coldsnap.artifact.rules import Digest, Line

if TYPE_CHECKING:
    from coldsnap.artifact.oci.layout import Store

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True)
class Pin(Record):
    name: Line
    manifest: Digest
    format: Literal[1] = 1


def pin(store: Store, name: str, manifest: str) -> None:
    """Pin an artifact under `name`; the same name again moves the pin.

    Raises:
        ColdSnapError: ``store.pin-invalid``, ``store.read-only``, ``file.disk-full``.
    """
    _check(name)
    data = canonical.dumps(Pin(name, manifest).to_json()).encode("ascii")
    try:
        store.pins.mkdir(mode=0o700, exist_ok=True)
        # Whole or not there: units end with the machine, and a pin cut short would forbid all
        # collection.
        write_atomic(store.pins / f"{name}.json", data, sync="data")
    except OSError as error:
        raise read_only(store.root) from error


def unpin(store: Store, name: str) -> None:
    """Let go; a pin that is not there is fine."""
    _check(name)
    (store.pins / f"{name}.json").unlink(missing_ok=True)
    if store.pins.exists():
        fsync_dir(store.pins)


def pins(store: Store) -> Iterator[Pin]:
    """All pins.

    Raises:
        ColdSnapError: ``store.pin-invalid`` for a file that cannot be read: what it holds is
            not known, so nothing may be collected.
    """
    for path in sorted(store.pins.glob("*.json")):
        what = f"pin {path}"
        try:
            yield decode(
                Pin, parse(read_regular(path, 1 << 16), limit=1 << 16, what=what), what=what
            )
        except ColdSnapError as error:
            message = f"{what} cannot be read: {error.message}"
            raise ColdSnapError("store.pin-invalid", message) from error


def _check(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ColdSnapError("store.pin-invalid", f"{name!r} is no name for a pin")
