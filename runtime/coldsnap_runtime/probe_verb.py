"""The verb ``probe``: the host's profile, with what passed a moment ago taken as known.

Trying things out (a dump, a container) takes a second; a plan asks several times. What passed is
kept in ``cache/probe.json`` for as long as its reasons stay: this boot, this kernel, this pack,
this CRIU, this user. What did not pass is tried anew each time, for it may just have been mended.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from coldsnap_runtime.probe.feature import PASSED, Options
from coldsnap_runtime.probe.profile import profile
from coldsnap_runtime.timing import boot_id, boottime

if TYPE_CHECKING:
    from coldsnap_runtime.context import Context

_STABLE = (
    "namespaces",
    "seccomp",
    "pid-choice",
    "direct-io",
    "criu",
    "criu.dump",
    "criu.lazy_pages",
    "criu.mem_dirty_track",
)
"""They change with what the key of the record holds, or not at all."""
_WHATEVER = ("criu.lazy_pages", "criu.mem_dirty_track")
"""Nothing needs them, and only another kernel or CRIU brings them: a no is kept too."""
_VOLATILE = ("docker", "nvidia", "cuda-checkpoint-api")
_VOLATILE_SECONDS = 60.0
_MAX_RECORD = 4 << 20


def probe(request: dict[str, Any], context: Context) -> dict[str, Any]:
    """Request ``{state_dir?, criu?, max_age?}``; without `max_age` everything is tried anew."""
    default = os.path.join(context.pack, "criu", "criu")
    criu = request.get("criu") or (default if os.path.exists(default) else "")
    options = Options(request.get("state_dir") or context.state_dir, criu)
    max_age = request.get("max_age") or 0.0
    key = _key(options, context)
    known = _known(context, key, float(max_age)) if max_age else {}
    found = profile(options, {name: feature for name, (_, feature) in known.items()})
    _keep(context, key, known, found)
    return found


def _key(options: Options, context: Context) -> list[Any]:
    criu = []
    with contextlib.suppress(OSError):
        status = os.stat(options.criu)
        criu = [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns]
    kernel = os.uname()
    return [
        boot_id(),
        f"{kernel.release} {kernel.version} {kernel.machine}",
        context.pack,
        options.state_dir,
        options.criu,
        criu,
        os.environ.get("COLDSNAP_CRIU", ""),
        sys.version,
        os.geteuid(),
    ]


def _known(context: Context, key: list[Any], max_age: float) -> dict[str, tuple[float, Any]]:
    """Name -> (when it was tried, in seconds since boot; the feature)."""
    try:
        with open(context.path("cache", "probe.json"), "rb") as file:
            record = json.loads(file.read(_MAX_RECORD))
        if record["key"] != key:
            return {}
        kept = {str(name): (float(at), feature) for name, (at, feature) in record["kept"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    now = boottime()
    limits = dict.fromkeys(_STABLE, max_age)
    limits |= dict.fromkeys(_VOLATILE, min(max_age, _VOLATILE_SECONDS))
    return {
        name: (at, feature)
        for name, (at, feature) in kept.items()
        if 0 <= now - at < limits.get(name, 0.0) and isinstance(feature, dict)
    }


def _keep(
    context: Context, key: list[Any], known: dict[str, tuple[float, Any]], found: dict[str, Any]
) -> None:
    from coldsnap.artifact.errors import ColdSnapError  # noqa: PLC0415  (start-up time)
    from coldsnap.artifact.files import write_atomic  # noqa: PLC0415

    now = boottime()
    kept: dict[str, Any] = {}
    for feature in found["features"]:
        name = feature["id"]
        is_kept = feature["status"] == PASSED or name in _WHATEVER
        if is_kept and name in (*_STABLE, *_VOLATILE):
            at = known[name][0] if name in known else now
            kept[name] = [at, {field: feature[field] for field in feature if field != "id"}]
    if set(kept) == set(known) or not os.path.isdir(context.state_dir):
        return
    path = context.path("cache", "probe.json")
    # A host that keeps nothing is only slower.
    with contextlib.suppress(OSError, ColdSnapError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        write_atomic(path, json.dumps({"key": key, "kept": kept}).encode(), sync="none")
