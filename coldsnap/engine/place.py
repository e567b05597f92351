"""Where the runtime pack is on a host: what every fact and operation of it is told."""

from __future__ import annotations

from coldsnap.sdk.host import Host
from coldsnap.sdk.step import RuntimeRef

STATE_DIR = "/var/lib/coldsnap"


def runtime_place(host: Host, runtime: RuntimeRef) -> dict[str, str]:
    """`pack`, `python` and `state_dir` of a host, by its variables."""
    state_dir = str(host.vars.get("state_dir") or STATE_DIR)
    return {
        "pack": f"{state_dir}/runtime/sha256/{runtime.digest.removeprefix('sha256:')}",
        "python": str(host.vars.get("python") or "python3"),
        "state_dir": state_dir,
    }
