"""Probes at the same time, each in a child with a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from typing import TYPE_CHECKING

from coldsnap_runtime.probe.feature import FAILED, Options, lacking

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldsnap_runtime.probe.feature import Feature

    Probe = Callable[[Options], Feature]


class Child:
    """A probe that runs in a process of its own."""

    def __init__(self, pid: int, reader: int, begin: float) -> None:
        self.pid = pid
        self.reader = reader
        """Where its answer comes from."""
        self.begin = begin


def tried(probe: Probe, options: Options) -> Feature:
    begin = time.monotonic()
    try:
        feature = probe(options)
    except Exception as error:  # noqa: BLE001  (a probe that fails is a feature that fails)
        feature = lacking(FAILED, f"the probe failed: {type(error).__name__}: {error}")
    feature["seconds"] = round(time.monotonic() - begin, 4)
    return feature


def start(probe: Probe, options: Options) -> Child:
    """Begin the probe in a child of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(reader)
        with os.fdopen(writer, "w") as file:
            json.dump(tried(probe, options), file)
        os._exit(0)
    os.close(writer)
    return Child(child, reader, time.monotonic())


def collect(child: Child, limit: float) -> Feature:
    """What it found, or that it did not end within `limit` seconds of its start."""
    data = b""
    while True:
        left = child.begin + limit - time.monotonic()
        if left <= 0 or not select.select([child.reader], [], [], left)[0]:
            break
        block = os.read(child.reader, 65536)
        if not block:
            break
        data += block
    os.close(child.reader)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    seconds = time.monotonic() - child.begin
    status = os.waitpid(child.pid, 0)[1]
    try:
        feature: Feature = json.loads(data)
    except ValueError:
        late = f"no answer within {limit:.0f} s"
        reason = late if seconds >= limit else f"the probe died (status {status})"
        feature = lacking(FAILED, reason, "look at the host's kernel log")
        feature["seconds"] = round(seconds, 4)
    return feature
