"""The system: rights, kernel, interpreter, processor, memory, what is installed."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import time
from typing import TYPE_CHECKING

from coldsnap_runtime.probe.feature import (
    FAILED,
    SBIN,
    UNQUALIFIED,
    UNSUPPORTED,
    Options,
    field,
    lacking,
    passed,
    read,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldsnap_runtime.probe.feature import Feature

MINIMUM_KERNEL = (5, 9)
MINIMUM_PYTHON = (3, 10)
CAPABILITIES = {
    "sys_admin": 21,
    "sys_ptrace": 19,
    "net_admin": 12,
    "sys_resource": 24,
    "checkpoint_restore": 40,
}
_SOME_PAST = 1_700_000_000


def probe_root(options: Options) -> Feature:
    del options
    if os.geteuid() == 0:
        return passed(uid=0)
    return lacking(
        FAILED,
        "not root",
        "connect as root, or set _sudo: true for this host in the inventory",
        uid=os.geteuid(),
    )


def capability(name: str) -> Callable[[Options], Feature]:
    def probe(options: Options) -> Feature:
        del options
        effective = int(field("/proc/self/status", "CapEff"), 16)
        if effective >> CAPABILITIES[name] & 1:
            return passed()
        return lacking(
            FAILED,
            f"CAP_{name.upper()} is not among the effective capabilities",
            f"in a container: --cap-add {name.upper()}",
            effective=f"{effective:x}",
        )

    return probe


def probe_kernel(options: Options) -> Feature:
    del options
    release = platform.release()
    if version_of(release) >= MINIMUM_KERNEL:
        return passed(release=release)
    wanted = ".".join(map(str, MINIMUM_KERNEL))
    return lacking(FAILED, f"kernel {release} is older than {wanted}", "use a newer kernel")


def probe_python(options: Options) -> Feature:
    del options
    version = platform.python_version()
    if sys.version_info[:2] >= MINIMUM_PYTHON:
        return passed(version=version, executable=sys.executable)
    return lacking(
        FAILED,
        f"Python {version} is older than 3.10",
        "install a newer one and name it in the host variable `python`",
    )


def probe_libc(options: Options) -> Feature:
    del options
    name, version = platform.libc_ver()
    if name == "glibc":
        return passed(libc=name, version=version)
    return lacking(UNQUALIFIED, f"libc {name or 'unknown'} was never tried", "use a glibc system")


def probe_cpu(options: Options) -> Feature:
    del options
    model, flags = cpu()
    return passed(model=model, flags=len(flags), cores=os.cpu_count())


def cpu() -> tuple[str, list[str]]:
    """(model, sorted feature flags) of the first processor."""
    model = field("/proc/cpuinfo", "model name") or field("/proc/cpuinfo", "CPU part")
    flags = field("/proc/cpuinfo", "flags") or field("/proc/cpuinfo", "Features")
    return model, sorted(set(flags.split()))


def probe_memory(options: Options) -> Feature:
    del options
    return passed(total=_kib("MemTotal"), available=_kib("MemAvailable"))


def _kib(name: str) -> int:
    return int(field("/proc/meminfo", name).split()[0]) * 1024


def probe_huge_pages(options: Options) -> Feature:
    """How the kernel gives transparent huge pages: told, never a lack (docs/benchmarks.md)."""
    del options
    found = re.search(r"\[(\w+)\]", read("/sys/kernel/mm/transparent_hugepage/enabled"))
    return passed(mode=found.group(1) if found else "unknown")


def probe_io_uring(options: Options) -> Feature:
    del options
    value = read("/proc/sys/kernel/io_uring_disabled").strip()
    meaning = {"0": "allowed", "1": "privileged processes only", "2": "off"}
    return passed(sysctl=value, host=meaning.get(value, "allowed"), units="kept away by seccomp")


def probe_firewall(options: Options) -> Feature:
    del options
    tools = {name: shutil.which(name, path=SBIN) or "" for name in ("nft", "iptables")}
    if any(tools.values()):
        return passed(**tools)
    reason = "neither nft nor iptables is installed: CRIU's network lock is skipped"
    return lacking(UNSUPPORTED, reason, "install nftables to dump with open client connections")


def probe_clock(options: Options) -> Feature:
    del options
    boottime = time.clock_gettime(time.CLOCK_BOOTTIME)
    if time.time() > _SOME_PAST:
        return passed(unix=round(time.time(), 3), boottime=round(boottime, 3))
    return lacking(FAILED, "the wall clock is years behind", "set it (NTP); TLS needs it")
