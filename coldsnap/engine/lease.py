"""Leases on targets: one run at a time changes a unit on a machine.

The lease lives on the target (`coldsnap_runtime.lease`), is keyed by machine id and unit, and is
held by run id; this side takes it, renews it in the background and gives it back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol, Self

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.place import runtime_place
from coldsnap.sdk.host import Host, OperationRequest
from coldsnap.sdk.step import RuntimeRef

TTL = 90.0
"""Seconds a lease outlives its last renewal."""
OPERATION = "coldsnap_core.operations:lease"
_CALL_TIMEOUT = 20.0
_RENEWERS = 32


class LeaseKeeper(Protocol):
    """Takes and gives back the lease of one unit on one host."""

    def acquire(self, host: Host, unit: str, run: str, ttl: float) -> None:
        """Raises: ColdSnapError: ``lease.held`` naming run, holder and seconds left."""

    def renew(self, host: Host, unit: str, run: str, ttl: float) -> None:
        """Raises: ColdSnapError: ``lease.lost``, ``lease.held``, ``host.unreachable``."""

    def release(self, host: Host, unit: str, run: str) -> None:
        """Idempotent; a lease held by another run is left alone."""


class TargetLeases:
    """The `LeaseKeeper` that asks the runtime pack on the host."""

    def __init__(self, runtime: RuntimeRef | None) -> None:
        self._runtime = runtime

    def acquire(self, host: Host, unit: str, run: str, ttl: float) -> None:
        self._call(host, "acquire", {"unit": unit, "run": run, "ttl": ttl})

    def renew(self, host: Host, unit: str, run: str, ttl: float) -> None:
        self._call(host, "renew", {"unit": unit, "run": run, "ttl": ttl})

    def release(self, host: Host, unit: str, run: str) -> None:
        self._call(host, "release", {"unit": unit, "run": run})

    def _call(self, host: Host, verb: str, request: dict[str, Any]) -> None:
        if self._runtime is None:
            raise ColdSnapError(
                "runtime.missing",
                f"unit {request['unit']} cannot be leased without a runtime pack",
                where=host.name,
                remedy="build it: coldsnap runtime build",
            )
        place = runtime_place(host, self._runtime)
        host.perform(
            OperationRequest(OPERATION, {"verb": verb, "request": request, **place}),
            timeout=_CALL_TIMEOUT,
        )


class NoLeases:
    """For plans whose steps touch no unit, and for tests."""

    def acquire(self, host: Host, unit: str, run: str, ttl: float) -> None:
        del host, unit, run, ttl

    def renew(self, host: Host, unit: str, run: str, ttl: float) -> None:
        del host, unit, run, ttl

    def release(self, host: Host, unit: str, run: str) -> None:
        del host, unit, run


class HeldLeases:
    """The leases of one run: taken lazily, renewed every third of their life, given back.

    A context manager; leaving it stops the renewal and releases everything.
    """

    def __init__(
        self,
        keeper: LeaseKeeper,
        run: str,
        *,
        on_lost: Callable[[ColdSnapError], None],
        record: Callable[[str, dict[str, Any]], object],
        ttl: float = TTL,
    ) -> None:
        self._keeper, self._run, self._ttl = keeper, run, ttl
        self._on_lost, self._record = on_lost, record
        self._held: dict[tuple[str, str], Host] = {}
        self._gates: dict[tuple[str, str], threading.Lock] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="coldsnap-lease", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stopped.set()
        self._thread.join()
        for (_name, unit), host in list(self._held.items()):
            self._give_back(host, unit)

    def hold(self, host: Host, unit: str) -> bool:
        """Have the lease; True if it was taken just now, so what was seen before may be old.

        Raises:
            ColdSnapError: ``lease.held`` and others of `LeaseKeeper.acquire`.
        """
        place = (host.name, unit)
        with self._lock:
            gate = self._gates.setdefault(place, threading.Lock())
        with gate:
            if place in self._held:
                return False
            self._record("lease.acquiring", {"host": host.name, "unit": unit})
            self._keeper.acquire(host, unit, self._run, self._ttl)
            self._record("lease.acquired", {"host": host.name, "unit": unit})
            with self._lock:
                self._held[place] = host
            return True

    def _give_back(self, host: Host, unit: str) -> None:
        # A lease that cannot be given back runs out by itself, and a journal that cannot be
        # written was told elsewhere: neither is a failure of the run.
        body: dict[str, Any] = {"host": host.name, "unit": unit}
        kind = "lease.released"
        try:
            self._keeper.release(host, unit, self._run)
        except ColdSnapError as error:
            kind, body["error"] = "lease.kept", error.to_json()
        with suppress(ColdSnapError):
            self._record(kind, body)

    def _renew(self) -> None:
        while not self._stopped.wait(self._ttl / 3):
            with self._lock:
                held = list(self._held.items())
            if held:
                # All at once: one host that hangs must not let the leases of others run out.
                with ThreadPoolExecutor(min(len(held), _RENEWERS)) as pool:
                    list(pool.map(lambda item: self._renew_one(item[1], item[0][1]), held))

    def _renew_one(self, host: Host, unit: str) -> None:
        try:
            self._keeper.renew(host, unit, self._run, self._ttl)
        except ColdSnapError as error:
            # An unreachable host may be back before the lease ends; only a refusal is final.
            if error.code.startswith("lease."):
                self._on_lost(error)
