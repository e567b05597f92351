"""``coldsnap-fill seal``: the digests of the pages that an index names, on all cores."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Final

from coldsnap.artifact.errors import ColdSnapError

_SEAL_SECONDS: Final = 1800.0


def seal(program: Path, index: Path, images: Path) -> None:
    """Fill in the digests of `index` from the pages files in `images`.

    Raises:
        ColdSnapError: ``image.seal-failed``.
    """
    argv = [os.fspath(program), "seal", "--index", os.fspath(index), "--images", os.fspath(images)]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_SEAL_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failed(str(error)) from error
    if done.returncode:
        raise _failed(_reason(done.stdout) or done.stderr.strip() or f"exit {done.returncode}")


def _reason(output: str) -> str:
    lines = output.strip().splitlines()
    try:
        told = json.loads(lines[-1])
    except (ValueError, IndexError):
        return ""
    return str(told.get("error", "")) if isinstance(told, dict) else ""


def _failed(why: str) -> ColdSnapError:
    return ColdSnapError(
        "image.seal-failed",
        f"the digests of the process image could not be computed: {why[:500]}",
        remedy="check the disk of the state folder, then capture again",
    )
