"""All features of a host, and who it is."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import tempfile
import time
from typing import TYPE_CHECKING

from coldsnap_runtime.probe import calls, criu, folders, services, system
from coldsnap_runtime.probe.children import collect, start, tried
from coldsnap_runtime.probe.drivers import add_drivers
from coldsnap_runtime.probe.feature import read

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from coldsnap_runtime.probe.feature import Feature, Options

PROBES: dict[str, Callable[[Options], Feature]] = {
    "root": system.probe_root,
    **{f"cap.{name}": system.capability(name) for name in system.CAPABILITIES},
    "kernel": system.probe_kernel,
    "python": system.probe_python,
    "libc": system.probe_libc,
    "cpu": system.probe_cpu,
    "memory": system.probe_memory,
    "state-dir": folders.probe_state_dir,
    "direct-io": folders.probe_direct_io,
    "namespaces": calls.probe_namespaces,
    "seccomp": calls.probe_seccomp,
    "pid-choice": calls.probe_pid_choice,
    "criu": criu.probe_criu,
    "criu.dump": criu.probe_criu_dump,
    "criu.lazy_pages": criu.criu_feature("lazy_pages", "pages are restored at once instead"),
    "criu.mem_dirty_track": criu.criu_feature("mem_dirty_track", "no incremental dumps"),
    "docker": services.probe_docker,
    "nvidia": services.probe_nvidia,
    "cuda-checkpoint-api": services.probe_cuda_checkpoint,
    "huge-pages": system.probe_huge_pages,
    "io-uring": system.probe_io_uring,
    "firewall": system.probe_firewall,
    "clock": system.probe_clock,
}
_AT_ONCE = (
    "root",
    *(f"cap.{name}" for name in system.CAPABILITIES),
    "kernel",
    "python",
    "libc",
    "cpu",
    "memory",
    "huge-pages",
    "io-uring",
    "clock",
)
"""They read a few lines from the kernel and cannot hang; the others are tried in children."""
_DEADLINES = {"criu": 30.0, "criu.dump": 30.0, "nvidia": 30.0, "cuda-checkpoint-api": 30.0}
_DEADLINE = 10.0


def profile(options: Options, known: Mapping[str, Feature] | None = None) -> dict[str, Any]:
    """All features, probed at the same time; `known` ones are taken as they are.

    ``features`` holds ``{id, status, reason, remedy, evidence, seconds}`` of each.
    """
    started = time.time()
    kept = known or {}
    options.scratch = tempfile.mkdtemp(prefix="coldsnap-probe-")
    try:
        missing = [name for name in PROBES if name not in kept]
        children = {name: start(PROBES[name], options) for name in missing if name not in _AT_ONCE}
        probed = {name: tried(PROBES[name], options) for name in missing if name in _AT_ONCE}
        for name, child in children.items():
            probed[name] = collect(child, _DEADLINES.get(name, _DEADLINE))
    finally:
        shutil.rmtree(options.scratch, ignore_errors=True)
    features = {name: dict(kept[name]) if name in kept else probed[name] for name in PROBES}
    add_drivers(features)
    return {
        "format": 1,
        "kind": "coldsnap-host-feature-profile",
        "identity": identity(features),
        "features": [{"id": name, "seconds": 0.0, **feature} for name, feature in features.items()],
        "started_unix": round(started, 3),
        "completed_unix": round(time.time(), 3),
    }


def identity(features: dict[str, Feature]) -> dict[str, Any]:
    model, flags = system.cpu()
    nvidia = features["nvidia"]["evidence"]
    return {
        # Images of machines often come without the former.
        "machine_id": read("/etc/machine-id").strip()
        or read("/sys/class/dmi/id/product_uuid").strip().lower(),
        "boot_id": read("/proc/sys/kernel/random/boot_id").strip(),
        "hostname": socket.gethostname(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpu": {"model": model, "flags": flags, "cores": os.cpu_count() or 0},
        "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()),
        "nvidia_driver": nvidia.get("driver", ""),
        "gpus": nvidia.get("gpus", []),
    }
