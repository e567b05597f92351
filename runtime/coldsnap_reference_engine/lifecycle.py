"""Quiesce, resume, hydrate, sleep, wake: what happens to the memory while nobody is served.

All of them are idempotent: asked again in the state that they lead to, they say so and do nothing.
"""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_reference_engine import payload
from coldsnap_reference_engine.engine import Engine
from coldsnap_reference_engine.gate import Phase
from coldsnap_reference_engine.http_server import Server
from coldsnap_reference_engine.regions import trim_heap
from coldsnap_reference_engine.timeline import log

_PART_SECONDS = 5.0
_JOIN_SECONDS = 60.0
"""Other ranks are restored and hydrated at the same time."""


class Lifecycle:
    """Turns an engine's phases, one request at a time."""

    def __init__(self, engine: Engine, serving: Server) -> None:
        self._engine = engine
        self._serving = serving
        self._lock = threading.Lock()
        self._written: payload.Written | None = None
        self._freed: dict[str, Any] = {}
        self._is_shallow = False
        """Asleep with the weights kept."""

    def quiesce(self, folder: Path, drain_seconds: float) -> dict[str, Any]:
        """Export the weights (still serving), drain, give weights and KV back.

        Returns what was freed: payload_bytes, kv_bytes; seconds of each part.

        Raises:
            ColdSnapError: ``engine.wrong-phase``, ``engine.drain-timeout`` and what writing a
                pack raises; the engine serves on after each.
        """
        with self._lock:
            gate = self._engine.gate
            if gate.phase is Phase.QUIESCED:
                return {**self._freed, "already": True}
            if gate.phase is not Phase.SERVING:
                raise _wrong_phase("quiesced", gate.phase)
            begin = time.monotonic()
            plan = self._engine.plan.digest
            self._written = payload.export(self._engine.weights, folder, plan)
            exported = time.monotonic()
            self._drain(drain_seconds)
            kv_bytes = self._engine.transformer.cache.region.resident_bytes()
            self._drop(with_weights=True)
            gate.turn(Phase.QUIESCED)
            self._freed = {
                "state": Phase.QUIESCED.value,
                "payload_bytes": self._engine.weights.payload_bytes,
                "payload_sha256": self._written.sha256,
                "kv_bytes": kv_bytes,
                "kv_reserved_bytes": self._engine.transformer.cache.reserved_bytes,
                "export_seconds": exported - begin,
                "pause_seconds": time.monotonic() - exported,
            }
            log(f"quiesced: {self._engine.weights.payload_bytes} bytes of weights given back")
            return self._freed

    def hydrate(self, source: dict[str, Any]) -> dict[str, Any]:
        """Bring weights back and serve.

        Args:
            source: ``payload`` and ``index`` (paths), ``method`` (``copy``: read and verify,
                the default; ``mmap``: map the pack), ``verified`` (mmap: the caller vouches for
                the file), ``provider``: ``native`` (the default: from the pack), ``recovery``
                (from the model folder's safetensors) or ``auto`` (native, else recovery).

        Returns what was used (``provider``), and under auto why it was not the pack
        (``provider_code``, ``provider_reason``).

        Raises:
            ColdSnapError: what reading a pack or a checkpoint raises; the engine holds no weights
                then, stays as it was and can be asked again.
        """
        with self._lock:
            gate = self._engine.gate
            if gate.phase is Phase.SERVING:
                return {"state": gate.phase.value, "bytes": 0, "already": True}
            if gate.phase not in (Phase.QUIESCED, Phase.SLEEPING):
                raise _wrong_phase("hydrated", gate.phase)
            before = gate.phase
            gate.turn(Phase.HYDRATING)
            begin = time.monotonic()
            try:
                told = self._bring_back(source)
                self._engine.ranks.join(_JOIN_SECONDS)
            except Exception as error:
                self._drop(with_weights=True)
                gate.turn(before, str(error))
                raise
            seconds = time.monotonic() - begin
            gate.turn(Phase.SERVING)
            log(f"hydrated: {told['bytes']} bytes in {seconds:.2f} s, {told['provider']}")
            return {"state": gate.phase.value, **told, "seconds": seconds}

    def resume(self, folder: Path) -> dict[str, Any]:
        """Serve again from the pack that `quiesce` wrote, or from the model folder.

        A disk that lost or damaged the pack must not cost the engine that wrote it.

        Raises:
            ColdSnapError: as `hydrate`, when the model folder is no good either.
        """
        pack, index = folder / payload.PACK, folder / payload.INDEX
        if pack.is_file() and index.is_file():
            return self.hydrate({"payload": str(pack), "index": str(index), "provider": "auto"})
        return self.hydrate({"provider": "recovery"})

    def export(self, folder: Path) -> dict[str, Any]:
        """Write the weights as a pack into `folder`, which is made, while serving.

        Raises:
            ColdSnapError: ``engine.wrong-phase``, and what writing a pack raises.
        """
        with self._lock:
            if self._engine.gate.phase is not Phase.SERVING:
                raise _wrong_phase("exported", self._engine.gate.phase)
            folder.mkdir(mode=0o700, exist_ok=True)
            written = payload.export(self._engine.weights, folder, self._engine.plan.digest)
            return {"bytes": written.bytes, "sha256": written.sha256}

    def sleep(self, level: int, drain_seconds: float) -> dict[str, Any]:
        """Level 1 gives the KV memory back, level 2 the weights too.

        Raises:
            ColdSnapError: ``engine.wrong-phase``, ``engine.drain-timeout``.
        """
        with self._lock:
            gate = self._engine.gate
            if gate.phase is Phase.SLEEPING:
                return {"is_sleeping": True, "already": True}
            if gate.phase is not Phase.SERVING:
                raise _wrong_phase("put to sleep", gate.phase)
            self._drain(drain_seconds)
            self._is_shallow = level == 1
            self._drop(with_weights=not self._is_shallow)
            gate.turn(Phase.SLEEPING)
            return {"is_sleeping": True, "level": level}

    def wake(self) -> dict[str, Any]:
        """Serve again; after level 2 the weights come from the model folder, in the plan's layouts.

        Raises:
            ColdSnapError: ``engine.wrong-phase`` in other phases, or what reading raises.
        """
        phase = self._engine.gate.phase
        if phase not in (Phase.SLEEPING, Phase.SERVING):
            raise _wrong_phase("woken", phase)
        if self._is_shallow:
            with self._lock:
                self._engine.ranks.join(_JOIN_SECONDS)
                self._is_shallow = False
                self._engine.gate.turn(Phase.SERVING)
        self.hydrate({"provider": "recovery"})
        return {"is_sleeping": False}

    def _bring_back(self, source: dict[str, Any]) -> dict[str, Any]:
        provider = source.get("provider", "native")
        if provider == "recovery":
            return {"provider": "recovery", "bytes": self._recover()}
        try:
            return {"provider": "native", "bytes": self._fill(source)}
        except (ColdSnapError, OSError) as error:
            if provider == "native":
                raise
            log(f"weights come from the model folder: {error}")
            code = error.code if isinstance(error, ColdSnapError) else "file.unreadable"
            reason = error.message if isinstance(error, ColdSnapError) else str(error)
        told = {"provider_code": code, "provider_reason": reason}
        return {"provider": "recovery", "bytes": self._recover(), **told}

    def _recover(self) -> int:
        weights = self._engine.weights
        self._engine.load_checkpoint()
        if self._written is not None:
            payload.check(weights, self._written)
        return weights.payload_bytes

    def _fill(self, source: dict[str, Any]) -> int:
        weights, threads = self._engine.weights, self._engine.threads
        body, index = Path(source["payload"]), Path(source["index"])
        if source.get("method") == "mmap":
            verified = bool(source.get("verified"))
            return payload.map_pack(weights, body, index, self._written, verified=verified)
        return payload.fill(weights, body, index, self._written, threads)

    def _drain(self, seconds: float) -> None:
        gate = self._engine.gate
        gate.turn(Phase.DRAINING)
        if not gate.drain(seconds):
            left = gate.inside
            gate.turn(Phase.SERVING)
            raise ColdSnapError(
                "engine.drain-timeout",
                f"{left} requests were still running after {seconds:g} s; the engine serves on",
                remedy="try again when it is less busy, or allow more time",
            )
        try:
            self._engine.ranks.part(max(seconds, _PART_SECONDS))
        except ColdSnapError:
            gate.turn(Phase.SERVING)
            raise
        self._serving.close_idle()

    def _drop(self, *, with_weights: bool) -> None:
        self._engine.transformer.cache.region.drop()
        if with_weights:
            self._engine.weights.region.drop()
        gc.collect()
        trim_heap()


def _wrong_phase(wanted: str, phase: Phase) -> ColdSnapError:
    message = f"an engine that is {phase.value} cannot be {wanted}"
    return ColdSnapError("engine.wrong-phase", message)
