"""What a verb wrote as root below somebody's state folder becomes theirs again."""

from __future__ import annotations

import os
from pathlib import Path

from coldsnap_runtime.ownership import give_back, owner_of

_FOLDERS = ("captures", "images", "leases", "log", "pycache")


def give_back_state(state_dir: str, job: str = "") -> None:
    """Hand our folders back to the owner of the state folder, or to who called sudo.

    Stores and units give back their own. For root nothing is done.
    """
    owner = owner_of(state_dir)
    if owner[0] == 0:
        return
    for name in _FOLDERS:
        give_back(Path(state_dir, name), owner)
    if job:
        jobs = Path(state_dir, "jobs")
        give_back(jobs / job, owner)
        os.chown(jobs, *owner)
