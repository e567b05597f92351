"""What a probe answers, and what probes read with."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    Feature = dict[str, Any]

PASSED, FAILED, UNSUPPORTED, UNQUALIFIED = "passed", "failed", "unsupported", "unqualified"
SBIN = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
"""Where system programs are, whatever the caller's PATH says."""


class Options:
    def __init__(self, state_dir: str = "/var/lib/coldsnap", criu: str = "") -> None:
        self.state_dir = state_dir
        self.criu = criu
        self.scratch = ""
        """A folder for the time of the probes."""


def passed(**evidence: Any) -> Feature:
    return {"status": PASSED, "reason": "", "remedy": "", "evidence": evidence}


def lacking(status: str, reason: str, remedy: str = "", **evidence: Any) -> Feature:
    return {"status": status, "reason": reason, "remedy": remedy, "evidence": evidence}


def run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        errors="replace",
        check=False,
        cwd="/",
    )


def first_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return lines[0] if lines else f"exit status {done.returncode}"


def read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def field(path: str, name: str) -> str:
    """The value of the first ``name : value`` line."""
    found = re.search(rf"^{re.escape(name)}\s*:\s*(.*)$", read(path), re.MULTILINE)
    return found.group(1).strip() if found else ""


def version_of(text: str) -> tuple[int, ...]:
    found = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in found.group().split(".")) if found else ()
