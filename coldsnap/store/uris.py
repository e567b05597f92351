"""Store URIs: where artifacts live. ``oci-layout:/folder`` is the embedded store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.oci.layout import Store, create_store, open_store

_SCHEME = re.compile(r"([a-z][a-z0-9+-]*):(.*)", re.DOTALL)
_REMOTE = {
    "oci": "an OCI registry",
    "hf": "the Hugging Face Hub",
}


@dataclass(frozen=True)
class StoreUri:
    scheme: str
    path: Path
    """Absolute."""

    def __str__(self) -> str:
        return f"{self.scheme}:{self.path}"


def parse_store_uri(text: str, *, state_dir: str = "/var/lib/coldsnap") -> StoreUri:
    """The folder that a URI names; ``{state_dir}`` in it is filled in.

    A plain absolute path is taken as ``oci-layout:`` of it.

    Raises:
        ColdSnapError: ``store.unsupported`` for a registry or the Hub, which hold artifacts that
            a folder on the host must hold for now; ``store.uri-invalid`` otherwise.
    """
    filled = text.replace("{state_dir}", state_dir)
    if filled.startswith("/"):
        filled = f"oci-layout:{filled}"
    found = _SCHEME.fullmatch(filled)
    scheme, rest = (found[1], found[2]) if found else ("", filled)
    if scheme in _REMOTE:
        raise ColdSnapError(
            "store.unsupported",
            f"{text}: {_REMOTE[scheme]} cannot be a store yet",
            cause="artifacts are restored in place from blobs on the host itself",
            remedy="use oci-layout:/absolute/folder; its folder can be copied with any OCI tool",
        )
    path = Path(rest)
    if scheme != "oci-layout" or not path.is_absolute() or ".." in path.parts or "\0" in rest:
        raise ColdSnapError(
            "store.uri-invalid",
            f"{text!r} is no store",
            remedy="write oci-layout:/absolute/folder",
        )
    return StoreUri(scheme, path)


def open_uri(text: str, *, create: bool = False, state_dir: str = "/var/lib/coldsnap") -> Store:
    """The store behind a URI.

    Raises:
        ColdSnapError: as `parse_store_uri`; ``store.missing``, ``store.not-a-store``,
            ``store.read-only``.
    """
    uri = parse_store_uri(text, state_dir=state_dir)
    return create_store(uri.path) if create else open_store(uri.path)
