"""The index of a store: which artifacts it has, their names, and their order.

One entry per tag, as other OCI tools do it; an artifact without a tag has one entry without a
name. The order of first appearance is the order of publication, which no clock can disturb.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.oci.media import (
    ARTIFACT_TYPE,
    CAPTURE,
    CREATED,
    NAME,
    REF_NAME,
    REQUEST,
    UNITS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PREFIX = re.compile(r"(?:sha256:)?([0-9a-f]{6,64})")


@dataclass(frozen=True)
class Entry:
    """One artifact of a store."""

    manifest: str
    size: int
    """Bytes of the manifest."""
    tags: tuple[str, ...]
    name: str
    """What its generations have in common."""
    request_sha256: str
    capture_id: str
    units: tuple[str, ...]
    created: str
    """RFC 3339, by the publishing host's clock."""


def entries(index: dict[str, Any]) -> list[Entry]:
    """The capsules of an index, oldest first; other people's manifests are left out."""
    found: dict[str, Entry] = {}
    for item in index["manifests"]:
        digest, size = item.get("digest"), item.get("size")
        if item.get("artifactType") != ARTIFACT_TYPE or not isinstance(size, int):
            continue
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            continue
        notes = _notes(item)
        tags = (notes[REF_NAME],) if REF_NAME in notes else ()
        known = found.get(digest)
        if known is not None:
            found[digest] = replace(known, tags=known.tags + tags)
            continue
        found[digest] = Entry(
            manifest=digest,
            size=size,
            tags=tags,
            name=notes.get(NAME, ""),
            request_sha256=notes.get(REQUEST, ""),
            capture_id=notes.get(CAPTURE, ""),
            units=tuple(filter(None, notes.get(UNITS, "").split(","))),
            created=notes.get(CREATED, ""),
        )
    return list(found.values())


def check_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """The tags, each once.

    Raises:
        ColdSnapError: ``store.tag-invalid``.
    """
    unique = tuple(dict.fromkeys(tags))
    for tag in unique:
        if not isinstance(tag, str) or not _TAG.fullmatch(tag):
            message = f"{tag!r} is no tag: letters, digits, '.', '_', '-', at most 128"
            raise ColdSnapError("store.tag-invalid", message)
    return unique


def insert(index: dict[str, Any], entry: dict[str, Any], tags: tuple[str, ...]) -> dict[str, Any]:
    """The index with `entry` (without name) under `tags` too; a tag leaves what had it."""
    kept = _without_tags(index["manifests"], set(tags))
    own = [place for place, item in enumerate(kept) if item.get("digest") == entry["digest"]]
    known = {_notes(kept[place]).get(REF_NAME) for place in own}
    added = [_tagged(entry, tag) for tag in tags if tag not in known]
    if not own:
        return {**index, "manifests": kept + (added or [_tagged(entry, None)])}
    if added and None in known:  # the nameless entry gets the first name, where it stands
        (nameless,) = (place for place in own if REF_NAME not in _notes(kept[place]))
        kept[nameless] = added.pop(0)
    after = own[-1] + 1
    return {**index, "manifests": kept[:after] + added + kept[after:]}


def retag(index: dict[str, Any], manifest: str | None, tags: tuple[str, ...]) -> dict[str, Any]:
    """The index with `tags` on `manifest`, or on nothing if that is None.

    Raises:
        ColdSnapError: ``store.no-such-artifact``.
    """
    if manifest is None:
        return {**index, "manifests": _without_tags(index["manifests"], set(tags))}
    for item in index["manifests"]:
        if item.get("digest") == manifest:
            return insert(index, _tagged(item, None), tags)
    raise ColdSnapError("store.no-such-artifact", f"the store has no artifact {manifest}")


def remove(index: dict[str, Any], manifest: str) -> dict[str, Any]:
    """The index without that artifact."""
    left = [item for item in index["manifests"] if item.get("digest") != manifest]
    return {**index, "manifests": left}


def match(found: list[Entry], ref: str) -> Entry:
    """The artifact that `ref` names: a tag, a digest, or the unique start of a digest.

    Raises:
        ColdSnapError: ``store.no-such-artifact``, ``store.ambiguous``.
    """
    for entry in found:
        if ref == entry.manifest or ref in entry.tags:
            return entry
    prefix = _PREFIX.fullmatch(ref)
    near = [e for e in found if prefix and e.manifest.startswith(f"sha256:{prefix[1]}")]
    if len(near) == 1:
        return near[0]
    if near:
        shown = tuple(entry.manifest for entry in near[:10])
        raise ColdSnapError(
            "store.ambiguous", f"{ref!r} names {len(near)} artifacts", details=shown
        )
    known = ", ".join(sorted(tag for entry in found for tag in entry.tags)[:20])
    raise ColdSnapError(
        "store.no-such-artifact",
        f"the store has no artifact {ref!r}",
        details=(f"tags: {known}",) if known else (),
    )


def _notes(item: dict[str, Any]) -> dict[str, str]:
    notes = item.get("annotations")
    if not isinstance(notes, dict):
        return {}
    return {key: value for key, value in notes.items() if isinstance(value, str)}


def _tagged(item: dict[str, Any], tag: str | None) -> dict[str, Any]:
    notes = {key: value for key, value in _notes(item).items() if key != REF_NAME}
    if tag is not None:
        notes[REF_NAME] = tag
    return {**item, "annotations": notes}


def _without_tags(items: list[dict[str, Any]], tags: set[str]) -> list[dict[str, Any]]:
    """Entries after the tags left them; what loses its last name stays, nameless."""
    kept: list[dict[str, Any]] = []
    for item in items:
        if _notes(item).get(REF_NAME) not in tags:
            kept.append(item)
            continue
        digest = item.get("digest")
        stays = [i for i in items if i.get("digest") == digest]
        named = [i for i in stays if _notes(i).get(REF_NAME) not in tags]
        if not named and not any(k.get("digest") == digest for k in kept):
            kept.append(_tagged(item, None))
    return kept
