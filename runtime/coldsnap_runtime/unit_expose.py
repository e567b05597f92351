"""Offer a generation's ports on the host, and hand them from one generation to the next.

One ``coldsnap-portmap`` per exposed generation listens on the host and connects inside the unit.
The next generation's portmap takes over the listening sockets themselves, so no connection is
refused in between; connections that are open stay with the old generation until they end.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.context import Context
from coldsnap_runtime.installation import Installation
from coldsnap_runtime.process_table import kill_exact
from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_record import PortRecord, ProcessRef, UnitRecord, UnitStore
from coldsnap_runtime.unit_requests import GenerationRequest

_START_SECONDS = 10.0
_DRAIN_SECONDS = 30


def expose(
    request: GenerationRequest, context: Context, installation: Installation, timing: Timing
) -> dict[str, Any]:
    """Hand the unit's host ports to a generation. Already exposed: nothing to do.

    Raises:
        ColdSnapError: ``unit.unknown``, ``unit.not-running``, ``expose.port-taken``,
            ``expose.failed``; the generation that is exposed stays so then.
    """
    store = UnitStore(context.state_dir)
    record = store.live(request.unit, request.generation)
    others = [other for other in store.generations(record.unit) if other.exposed]
    before = [other for other in others if other.generation != record.generation]
    if record.exposed and record.portmap is not None and record.portmap.is_alive:
        return _answer(record, has_changed=False)
    with timing.span("expose", ports=len(record.ports)), context.uninterrupted():
        portmap = _start_portmap(installation, record, before)
        try:
            record = store.update(record, portmap=portmap, exposed=True)
        except BaseException:
            if portmap is not None:
                withdraw(portmap)
            raise
        for other in before:
            store.update(other, portmap=None, exposed=False)
    return _answer(record, has_changed=True)


def withdraw(portmap: ProcessRef) -> None:
    """Stop listening; open connections may end within the portmap's own patience."""
    if portmap.is_alive:
        kill_exact(portmap.pid, portmap.start, signal.SIGTERM)


def hold(record: UnitRecord) -> None:
    """Let new callers wait in the backlog; open connections go on. Ends after ten minutes."""
    _tell(record, signal.SIGUSR1)


def cut(record: UnitRecord) -> None:
    """Close the connections that are open. For idle ones only: drain the engine before."""
    _tell(record, signal.SIGHUP)


def go_on(record: UnitRecord) -> None:
    """End a hold; harmless without one."""
    _tell(record, signal.SIGUSR2)


def _tell(record: UnitRecord, number: signal.Signals) -> None:
    if record.portmap is not None and record.portmap.is_alive:
        kill_exact(record.portmap.pid, record.portmap.start, number)


def _answer(record: UnitRecord, *, has_changed: bool) -> dict[str, Any]:
    ports = [
        {"name": p.name, "inner": p.inner, "host": p.host, "port": p.port} for p in record.ports
    ]
    return {"generation": record.generation, "ports": ports, "changed": has_changed}


def _start_portmap(
    installation: Installation, record: UnitRecord, before: list[UnitRecord]
) -> ProcessRef | None:
    """None if there is nothing to map: no ports, or the engine listens on the host itself."""
    ports = [port for port in record.ports if not _is_direct(record, port)]
    if not ports or record.init is None:
        _replace(before)
        return None
    predecessors = [other.portmap for other in before if other.portmap and other.portmap.is_alive]
    reading, writing = os.pipe()
    try:
        argv = [os.fspath(installation.portmap), "--report", str(writing)]
        argv += ["--unit", str(record.init.pid), "--drain", str(_DRAIN_SECONDS)]
        for predecessor in predecessors:
            argv += ["--take-from", str(predecessor.pid)]
        for port in ports:
            argv += ["--port", port.host, str(port.port), str(port.inner)]
        process = subprocess.Popen(
            argv,
            pass_fds=(writing,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            start_new_session=True,
        )
        os.close(writing)
        writing = -1
        _check(_read_report(reading), process)
    finally:
        for descriptor in (reading, writing):
            if descriptor >= 0:
                os.close(descriptor)
    return ProcessRef.of(process.pid)


def _replace(before: list[UnitRecord]) -> None:
    for other in before:
        if other.portmap is not None:
            withdraw(other.portmap)


def _is_direct(record: UnitRecord, port: PortRecord) -> bool:
    return record.network == "host" and port.port == port.inner


def _read_report(descriptor: int) -> str:
    deadline = time.monotonic() + _START_SECONDS
    text = b""
    while b"\n" not in text:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return "error no answer in time"
        block = os.read(descriptor, 4096)
        if not block:
            break
        text += block
    return text.decode("utf-8", "replace").strip()


def _check(report: str, process: subprocess.Popen[bytes]) -> None:
    if report == "ready":
        return
    process.kill()
    process.wait()
    reason = report.removeprefix("error ") or "it died at once"
    is_taken = "Address already in use" in reason
    raise ColdSnapError(
        "expose.port-taken" if is_taken else "expose.failed",
        f"the unit's ports cannot be offered on the host: {reason}",
        cause="another program listens there" if is_taken else "",
        remedy="free the port (ss -ltnp shows who holds it), or set another port in the plan",
    )
