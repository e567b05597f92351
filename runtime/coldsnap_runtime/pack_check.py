"""The verb ``pack.verify``: is the pack that runs what its digest says?

Hashed once, it is believed as long as no file of it changed by what stat says (ctime cannot be
set by a program): asked before every run, this must cost milliseconds. So nothing heavy is
imported before there is something to hash.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coldsnap_runtime.context import Context

_MAX_RECORD = 16 << 20
_FIELDS = {"expect", "policy"}


def verify(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """``{digest, files, bytes, facts, python}``.

    Request: ``{expect, policy}``: the digest wanted, with or without ``sha256:``; ``full`` (the
    default) hashes every file, ``record`` believes an earlier hash of unchanged files.

    Raises:
        ColdSnapError: ``pack.differs`` naming the files, ``pack.wrong``, ``request.invalid``.
    """
    expect = _checked(value)
    found = _files(context.pack)
    place = _record_of(context)
    known = _read(place) if value.get("policy") == "record" else {}
    if known.get("files") == found and _is(known.get("result"), expect):
        return _answer(known["result"])
    from coldsnap.artifact.tree import verify_tree  # noqa: PLC0415  (only to hash)

    result = verify_tree(context.pack, expect or None).to_json()
    if _files(context.pack) == found:
        _keep(place, {"files": found, "result": result})
    return _answer(result)


def _answer(result: dict[str, Any]) -> dict[str, Any]:
    return {**result, "python": ".".join(platform.python_version_tuple()[:2])}


def _checked(value: dict[str, Any]) -> str:
    expect, policy = value.get("expect", ""), value.get("policy", "full")
    if set(value) <= _FIELDS and isinstance(expect, str) and policy in ("full", "record"):
        return expect
    from coldsnap.artifact.errors import ColdSnapError  # noqa: PLC0415

    raise ColdSnapError("request.invalid", "pack.verify takes expect and policy (full, record)")


def _is(result: Any, expect: str) -> bool:
    if not isinstance(result, dict) or not isinstance(result.get("digest"), str):
        return False
    wanted = expect.removeprefix("sha256:")
    return not wanted or result["digest"] == f"sha256:{wanted}"


def _files(pack: str) -> dict[str, list[int]]:
    """Every file of the pack with what changes when it does.

    Byte code is no part of it, no digest covers it, and ours is kept elsewhere (pack_main): it
    is removed.
    """
    found: dict[str, list[int]] = {}
    for folder, names, files in os.walk(pack):
        if "__pycache__" in names:
            names.remove("__pycache__")
            shutil.rmtree(os.path.join(folder, "__pycache__"), ignore_errors=True)
        for name in files:
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                found[os.path.relpath(path, pack)] = _identity(os.lstat(path))
    return found


def _identity(status: os.stat_result) -> list[int]:
    return [
        status.st_dev,
        status.st_ino,
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    ]


def _record_of(context: Context) -> str:
    name = os.path.basename(context.pack)
    return context.path("runtime", "verified", f"{name}.json")


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            value = json.loads(file.read(_MAX_RECORD))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _keep(path: str, value: dict[str, Any]) -> None:
    """A record that cannot be kept costs the next one a hash, nothing else."""
    from coldsnap.artifact.errors import ColdSnapError  # noqa: PLC0415
    from coldsnap.artifact.files import write_atomic  # noqa: PLC0415

    with contextlib.suppress(OSError, ColdSnapError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        write_atomic(path, json.dumps(value).encode(), sync="data")
