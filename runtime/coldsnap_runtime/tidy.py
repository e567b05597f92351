"""What nobody will ask for again: jobs that ended long ago, generations that are long gone.

It runs in a job that is over, at most once an hour, so that no verb waits for it and no host
needs a timer of its own.
"""

from __future__ import annotations

import os
import shutil
import time

from coldsnap_runtime import job_control, lease
from coldsnap_runtime.arguments import Arguments
from coldsnap_runtime.unit_record import UnitStore

_PERIOD = 3600.0
_KEPT_GENERATIONS = 5
"""Generations that ended, of each unit: their logs tell why."""


def tidy(state_dir: str) -> None:
    """Remove ended jobs older than a week and all but the newest ended generations."""
    stamp = os.path.join(state_dir, "jobs", ".tidied")
    try:
        if time.time() - os.stat(stamp).st_mtime < _PERIOD:
            return
    except FileNotFoundError:
        pass
    with open(stamp, "w", encoding="ascii"):
        pass
    arguments = Arguments("job.gc")
    arguments.state_dir = state_dir
    job_control.collect(arguments)
    store = UnitStore(state_dir)
    for unit in store.units():
        _forget_ended(store, unit, state_dir)


def _forget_ended(store: UnitStore, unit: str, state_dir: str) -> None:
    with lease.exclusive(state_dir, unit) as is_mine:
        if not is_mine:
            return  # a verb is at work on it
        ended = [record for record in store.generations(unit) if not record.is_live]
        for record in ended[:-_KEPT_GENERATIONS]:
            shutil.rmtree(store.paths(unit, record.generation).folder, ignore_errors=True)
            store.forget(unit, record.generation)
