"""What is looked at before anything of a restore is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.container import image_identity
from coldsnap_runtime.unit_processes import pid_max

if TYPE_CHECKING:
    from pathlib import Path

    from coldsnap_runtime.unit_capture import Capture
    from coldsnap_runtime.unit_requests import LaunchSpec

_NEEDED = ("images/inventory.img", "images/pstree.img", "bin/coldsnap-unit")


def check_image(capture: Capture, image: Path) -> None:
    """Whether all files of the image are there; a replica may have another unit id.

    Raises:
        ColdSnapError: ``image.incomplete``.
    """
    sets = [f"files/{s.name}.{suffix}" for s in capture.file_sets for suffix in ("json", "data")]
    for name in (*_NEEDED, *sets):
        if not (image / name).is_file():
            raise ColdSnapError(
                "image.incomplete",
                f"the image has no {name}",
                remedy="verify the artifact, then restore another one",
            )


def check_pids(capture: Capture) -> None:
    """Raises ColdSnapError ``restore.pid-limit``."""
    highest = max([capture.last_pid, *(process.pid for process in capture.processes)])
    limit = pid_max()
    if highest >= limit:
        raise ColdSnapError(
            "restore.pid-limit",
            f"a captured process has number {highest}, this host gives out those below {limit}",
            remedy=f"raise the limit: sysctl kernel.pid_max={1 << 22}",
        )


def check_container(capture: Capture, spec: LaunchSpec) -> None:
    """Raises ColdSnapError ``restore.image-changed``, ``container.*``."""
    if not capture.image_id:
        return
    found = image_identity(spec.image)
    if found != capture.image_id:
        raise ColdSnapError(
            "restore.image-changed",
            f"{spec.image} is not the container image that was captured",
            details=(f"captured {capture.image_id}, found {found}", "nothing was started"),
            remedy="name the image by its digest in the plan, and pull that one",
        )
