"""Saved plans: what was reviewed, as one file, so that exactly that is applied or nothing.

The file is canonical JSON with the digest of itself; it holds the plan's text, its variables,
the inventory's digest, and of each instance the change and the digest of what was seen.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coldsnap.artifact import canonical, files
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.history import key_from, key_json
from coldsnap.engine.preview import InstancePreview, Preview
from coldsnap.engine.saved_change import change_from, change_json
from coldsnap.engine.setup import Setup

FORMAT = "saved-plan/v1"
MAX_BYTES = 256 << 20
_MAX_DETAILS = 20
_MARK = b'"coldsnap":"%s"' % FORMAT.encode()
_HEAD_BYTES = 64


@dataclass(frozen=True)
class SavedPlan:
    path: str
    sha256: str
    plan: Mapping[str, Any]
    """``path, name, text, document_sha256, request_sha256, variables``"""
    inventory: Mapping[str, str]
    """``path, sha256``"""
    runtime: str | None
    """Digest of the runtime pack."""
    selected: frozenset[str] | None
    preview: Preview


def save_plan(setup: Setup, preview: Preview, path: Path) -> SavedPlan:
    """Write a saved plan by temporary name and rename.

    Raises:
        ColdSnapError: ``plan.has-errors`` when the preview found some: what cannot be applied
            is not saved; ``file.*``.
    """
    if preview.errors:
        raise ColdSnapError(
            "plan.has-errors",
            f"the preview found {len(preview.errors)} errors, so there is no plan to save",
            remedy="put them right and run plan diff again",
        )
    if not _may_be_replaced(path):
        raise ColdSnapError(
            "plan.out-exists",
            f"{path} is there and is no saved plan; it was left as it is",
            remedy="choose another name, or remove it",
        )
    body: dict[str, Any] = {
        "coldsnap": FORMAT,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **setup.origin(),
        "runtime": setup.runtime.digest if setup.runtime else None,
        "selected": sorted(setup.selected) if setup.selected is not None else None,
        "instances": [_instance_json(instance) for instance in preview.instances],
    }
    body["sha256"] = canonical.digest(body)
    files.write_named(path, canonical.dumps(body).encode("ascii") + b"\n", 0o644)
    return _saved(str(path), body)


def _may_be_replaced(path: Path) -> bool:
    """An older saved plan may; the plan itself, or another file of the user's, may not."""
    try:
        with files.open_regular(files.behind_link(path)) as file:
            head = file.read(len(_MARK) + _HEAD_BYTES)
    except ColdSnapError:
        return True  # it is not there, or no file; writing will tell
    return not head or (head.startswith(b"{") and _MARK in head)


def load_plan_file(path: Path) -> SavedPlan:
    """Read a saved plan and check its digest.

    Raises:
        ColdSnapError: ``plan.not-saved`` when it is no saved plan; ``plan.saved-damaged`` when it
            was edited; ``file.*``.
    """
    data = files.read_regular(path, MAX_BYTES)
    try:
        body = json.loads(data)
        is_ours = body["coldsnap"] == FORMAT
    except (ValueError, KeyError, TypeError, RecursionError):
        is_ours = False
    if not is_ours:
        raise ColdSnapError(
            "plan.not-saved",
            f"{path} is not a saved plan",
            remedy="make one: coldsnap plan diff PLAN --out FILE",
        )
    digest = body.pop("sha256", "")
    if canonical.digest(body) != digest:
        raise ColdSnapError(
            "plan.saved-damaged",
            f"{path} was changed after it was saved",
            remedy="make it again: coldsnap plan diff PLAN --out FILE",
        )
    body["sha256"] = digest
    try:
        return _saved(str(path), _complete(body))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise ColdSnapError(
            "plan.saved-damaged", f"{path} does not have the fields of a saved plan: {error}"
        ) from None


def is_saved_plan(path: Path) -> bool:
    """Whether a file looks like a saved plan, so that `plan apply FILE` can tell."""
    try:
        with files.open_regular(path) as file:
            return file.read(1) == b"{"
    except ColdSnapError:
        return False


def compare(saved: SavedPlan, setup: Setup, now: Preview) -> list[str]:
    """What is not as it was when the plan was saved, a line each; empty if nothing."""
    lines = _globals(saved, setup)
    before = {instance.key: instance for instance in saved.preview.instances}
    after = {instance.key: instance for instance in now.instances}
    lines += [f"{key}: is no longer part of it" for key in before if key not in after]
    lines += [f"{key}: was not part of it" for key in after if key not in before]
    for key, was in before.items():
        if key in after and (line := _differs(was, after[key])):
            lines.append(f"{key}: {line}")
    lines += [f"{host}: {error.message}" for host, error in now.unreachable.items()]
    return lines


def stale(saved: SavedPlan, lines: list[str]) -> ColdSnapError:
    """``plan.stale``, naming what changed."""
    details = tuple(lines[:_MAX_DETAILS])
    if len(lines) > _MAX_DETAILS:
        details += (f"and {len(lines) - _MAX_DETAILS} more",)
    return ColdSnapError(
        "plan.stale",
        f"{saved.path} is stale: {_counted(len(lines))} when it was saved",
        details=details,
        remedy=f"review it again: coldsnap plan diff {saved.plan['path']} --out {saved.path}",
    )


def _counted(number: int) -> str:
    return "1 thing is not as it was" if number == 1 else f"{number} things are not as they were"


def _globals(saved: SavedPlan, setup: Setup) -> list[str]:
    lines = []
    if (line := _file_differs(saved)) is not None:
        lines.append(line)
    if setup.plan.request_sha256 != saved.plan["request_sha256"]:
        lines.append("the plan resolves to another request (a pack or a file it names changed)")
    if setup.fleet.sha256 != saved.inventory["sha256"]:
        lines.append(f"inventory {setup.fleet.path} changed")
    runtime = setup.runtime.digest if setup.runtime else None
    if runtime != saved.runtime:
        lines.append(f"runtime pack was {saved.runtime}, is {runtime}")
    return lines


def _file_differs(saved: SavedPlan) -> str | None:
    """Whether the plan's file says something else by now; one that is elsewhere says nothing."""
    path = Path(str(saved.plan["path"]))
    try:
        found = files.sha256_file(path)
    except ColdSnapError:
        return None
    return None if found == saved.plan["document_sha256"] else f"{path} was edited since"


def _differs(was: InstancePreview, now: InstancePreview) -> str:
    if now.error is not None:
        return now.error.message
    if was.skipped != now.skipped:
        return f"was {was.skipped or 'to be done'}, is {now.skipped or 'to be done'}"
    if was.change is None or now.change is None:
        return "" if was.change is now.change else "what it would do changed"
    if was.change.action != now.change.action or was.change.summary != now.change.summary:
        return (
            f"was {was.change.action.value} ({was.change.summary}), "
            f"is {now.change.action.value} ({now.change.summary})"
        )
    if was.seen_sha256 != now.seen_sha256:
        return "what was observed changed"
    return ""


def _instance_json(instance: InstancePreview) -> dict[str, Any]:
    return {
        "key": key_json(instance.key),
        "type": instance.type,
        "change": change_json(instance.change) if instance.change else None,
        "seen_sha256": instance.seen_sha256,
        "skipped": instance.skipped,
    }


def _complete(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The digest keeps accidents away, not people: look at what is read later, too."""
    plan, inventory = body["plan"], body["inventory"]
    texts = [plan[name] for name in ("path", "name", "text", "document_sha256", "request_sha256")]
    texts += [inventory[name] for name in ("path", "sha256")]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a text is missing")
    if not isinstance(plan["variables"], dict):
        raise TypeError("variables are no map")
    return body


def _saved(path: str, body: Mapping[str, Any]) -> SavedPlan:
    plan, selected = body["plan"], body["selected"]
    instances = tuple(
        InstancePreview(
            key_from(item["key"]),
            str(item["type"]),
            change_from(item["change"]) if item["change"] else None,
            str(item["seen_sha256"]),
            str(item["skipped"]),
        )
        for item in body["instances"]
    )
    preview = Preview(
        plan_name=plan["name"],
        plan_path=plan["path"],
        plan_sha256=plan["document_sha256"],
        request_sha256=plan["request_sha256"],
        run="",
        instances=instances,
    )
    return SavedPlan(
        path=path,
        sha256=body["sha256"],
        plan=plan,
        inventory=body["inventory"],
        runtime=body["runtime"],
        selected=None if selected is None else frozenset(selected),
        preview=preview,
    )
