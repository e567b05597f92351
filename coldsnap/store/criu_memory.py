"""What was found out about CRIU on this machine, so that not every command tries it out again.

Trying takes a quarter of a second: CRIU's own check, and a dump. The answer stays as long as what
it was found from: the programs by their stat, the kernel, the user, the environment's wishes.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from coldsnap.artifact import canonical
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import read_regular, write_atomic

_FORMAT = 1
_SECONDS = 86400.0
"""A setting of the kernel may change without a trace; then it is found after a day."""
_MAX_BYTES = 1 << 20


def key_of(programs: Iterable[Path], wishes: Mapping[str, str | None]) -> str:
    """Digest of all that the answer depends on."""
    kernel = os.uname()
    return canonical.digest(
        {
            "format": _FORMAT,
            "programs": [_identity(path) for path in sorted(set(programs))],
            "wishes": dict(wishes),
            "kernel": f"{kernel.release} {kernel.version} {kernel.machine}",
            "uid": os.geteuid(),
        }
    )


def remembered(file: Path, key: str, find: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The kept answer of this key, or what `find` returns, kept."""
    kept = _read(file)
    answer = kept.get("answer")
    age = time.time() - float(kept.get("unix") or 0.0)
    if kept.get("key") == key and isinstance(answer, dict) and 0 <= age < _SECONDS:
        return answer
    found = find()
    record = {"key": key, "answer": found, "unix": round(time.time(), 3)}
    with contextlib.suppress(ColdSnapError, OSError):  # then it is found out again
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps(record).encode(), sync="none")
    return found


def _read(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(read_regular(file, _MAX_BYTES))
    except (ColdSnapError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _identity(path: Path) -> list[Any]:
    try:
        found = path.stat()
    except OSError:
        return [os.fspath(path)]
    return [os.fspath(path), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns]
