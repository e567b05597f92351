"""Which snapshot drivers the host can do, out of its features."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldsnap_runtime.probe.feature import (
    PASSED,
    UNQUALIFIED,
    UNSUPPORTED,
    lacking,
    passed,
    version_of,
)

if TYPE_CHECKING:
    from coldsnap_runtime.probe.feature import Feature

_CRIU_NEEDS = (
    "root",
    "kernel",
    "python",
    "cap.sys_admin",
    "cap.sys_ptrace",
    "cap.net_admin",
    "namespaces",
    "seccomp",
    "pid-choice",
    "criu",
    "criu.dump",
)
_API = "cuda-checkpoint-api"
# Of each snapshot driver for GPUs: the NVIDIA driver that it needs, what else, and why nobody has
# shown that it works, if so. As in coldsnap.artifact.drivers, which a bare host does not have.
_GPU_DRIVERS: dict[str, tuple[int, tuple[str, ...], str]] = {
    "c580": (580, (_API,), ""),
    "n580": (580, (), ""),
    "n610": (610, (_API,), "no NVIDIA driver >= 610 was at hand when this was built"),
}


def add_drivers(features: dict[str, Feature]) -> None:
    """Add what follows from the probed `features`, which are all there."""
    features["driver.criu"] = _driver(features, _CRIU_NEEDS)
    features["criu-process-tree"] = features["driver.criu"]  # its name in artifacts
    features["criu-process-template"] = features["driver.criu"]
    features["cuda-fresh-state"] = _gpu_driver(features, 580, ())
    features["cuda-initialized-state"] = _gpu_driver(features, 580, (_API,))
    features["cuda-classic-ipc"] = _gpu_driver(features, 610, (_API,))
    for name, (major, needs, unshown) in _GPU_DRIVERS.items():
        feature = _gpu_driver(features, major, (*_CRIU_NEEDS, *needs))
        if name == "n580" and feature["status"] != PASSED:
            feature["reason"] += " (a unit without devices needs criu-process-template only)"
        if feature["status"] == PASSED and unshown:
            remedy = "name it in the plan to try it; driver: auto takes another one"
            feature = lacking(UNQUALIFIED, unshown, remedy, able=True)
        features[f"driver.{name}"] = feature


def _driver(features: dict[str, Feature], needs: tuple[str, ...]) -> Feature:
    missing = [name for name in needs if features[name]["status"] != PASSED]
    if not missing:
        return passed(needs=list(needs))
    # What certainly fails weighs more than what is not known yet.
    certain = [name for name in missing if features[name]["status"] != UNQUALIFIED]
    first = (certain or missing)[0]
    feature = features[first]
    status = feature["status"] if certain else UNQUALIFIED
    return lacking(status, f"{first}: {feature['reason']}", feature["remedy"], missing=missing)


def _gpu_driver(features: dict[str, Feature], major: int, needs: tuple[str, ...]) -> Feature:
    """What a host with an NVIDIA driver >= `major` can do, given `needs`."""
    version = str(features["nvidia"]["evidence"].get("driver", ""))
    if features["nvidia"]["status"] != PASSED:
        return lacking(UNSUPPORTED, features["nvidia"]["reason"], features["nvidia"]["remedy"])
    if version_of(version) < (major,):
        reason = f"NVIDIA driver {version} is older than {major}"
        return lacking(UNSUPPORTED, reason, f"install an NVIDIA driver >= {major}")
    return _driver(features, (*needs, "nvidia"))
