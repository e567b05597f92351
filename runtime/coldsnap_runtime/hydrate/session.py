"""A session: the library's threads, ring and streams, used by many calls."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coldsnap_runtime.hydrate.failures import failure
from coldsnap_runtime.hydrate.structures import (
    DIGEST_BYTES,
    NOWHERE_IN_PARTICULAR,
    Algorithm,
    Code,
    Digests,
    Engine,
    ExtentEntry,
    Io,
    Metrics,
    Opening,
    Place,
    ProgressCallback,
    Request,
    Settings,
    Waits,
)

if TYPE_CHECKING:
    from types import TracebackType

    from coldsnap.artifact.errors import ColdSnapError
    from coldsnap_runtime.hydrate.library import Library

ENGINE_VARIABLE = "COLDSNAP_HYDRATE_ENGINE"
"""``ring``, ``cufile`` or ``measured``: how bytes come to a device where no caller says."""
_OPENING = ("threads", "driver", "touch", "pin", "streams", "digests", "cufile")
Progress = Callable[[int, int], object]
"""Gets bytes done and bytes in all."""
Entry = tuple[int, int, int]
"""Offset in the file, bytes, address."""


class Cancel:
    """A switch that ends running calls from any thread or signal handler."""

    def __init__(self) -> None:
        self.flag = ctypes.c_int32(0)

    def set(self) -> None:
        self.flag.value = 1


@dataclass(frozen=True)
class Transfer:
    """What one call moves."""

    path: str
    file_bytes: int
    extents: Sequence[Entry]
    chunk_bytes: int
    algorithm: Algorithm
    digests: bytes | None = None
    """Expected, 32 bytes per chunk; None where they are made or not wanted."""
    digest_count: int = 0
    check_padding: bool = False
    identity: bool = True
    """Of a write: SHA-256 of body and extents, the work of one core; else `identify` does it."""
    is_durable: bool = True
    """Of a write: the file is on the disk when the call returns."""
    seconds: float = 0
    """Deadline; 0: none."""
    cancel: Cancel | None = None
    progress: Progress | None = None


@dataclass(frozen=True)
class Made:
    """Digests that a call made."""

    chunks: bytes
    extents: bytes
    body: bytes


class Prepared:
    """A request with everything that it points to."""

    def __init__(self, transfer: Transfer, *, makes: bool = False) -> None:
        count = len(transfer.extents)
        # Zero bytes need an address too.
        self._extents = (ExtentEntry * max(count, 1))(
            *(ExtentEntry(*entry) for entry in transfer.extents)
        )
        digests = transfer.digests if transfer.digests is not None else b""
        size = transfer.digest_count * DIGEST_BYTES if makes else len(digests)
        self._digests = (ctypes.c_uint8 * max(size, 1))()
        ctypes.memmove(self._digests, digests, 0 if makes else size)
        self._extent_sha256 = (ctypes.c_uint8 * max(count * DIGEST_BYTES, 1))()
        self._body_sha256 = (ctypes.c_uint8 * DIGEST_BYTES)()
        self.raised: list[BaseException] = []
        self._progress = self._callback(transfer.progress)
        has_identity = transfer.identity or not makes
        self.request = Request(
            struct_bytes=ctypes.sizeof(Request),
            algorithm=transfer.algorithm,
            path=os.fsencode(transfer.path),
            file_bytes=transfer.file_bytes,
            extents=self._extents,
            extent_count=count,
            chunk_bytes=transfer.chunk_bytes,
            digests=self._digests,
            digest_count=size // DIGEST_BYTES,
            extent_sha256=self._extent_sha256 if has_identity else None,
            body_sha256=self._body_sha256 if has_identity else None,
            check_padding=int(transfer.check_padding),
            is_unsynced=int(not transfer.is_durable),
            cancel=ctypes.pointer(transfer.cancel.flag) if transfer.cancel else None,
            seconds=transfer.seconds,
            progress=self._progress,
        )
        self._sizes = size, count * DIGEST_BYTES

    def made(self) -> Made:
        chunks, extents = self._sizes
        return Made(
            bytes(self._digests)[:chunks],
            bytes(self._extent_sha256)[:extents],
            bytes(self._body_sha256),
        )

    def _callback(self, progress: Progress | None) -> Any:
        if progress is None:
            return ProgressCallback()

        def report(_: int | None, done: int, total: int) -> int:
            try:
                progress(done, total)
            except BaseException as error:  # noqa: BLE001 - raised again when the call has ended
                self.raised.append(error)
                return 1
            return 0

        return ProgressCallback(report)


class Session:
    """Threads, ring and streams. One call at a time runs in it; other threads' calls wait."""

    def __init__(
        self,
        library: Library,
        place: Place = Place.HOST,
        *,
        io: Io = Io.AUTO,
        threads: int = 0,
        slots: int = 0,
        slot_bytes: int = 0,
        block_bytes: int = 0,
        digests: Digests = Digests.AUTO,
        engine: Engine | None = None,
        waits: Waits = Waits.AUTO,
        device: int = 0,
        cuda_library: str | None = None,
        cufile_library: str | None = None,
    ) -> None:
        """Make one; zeros leave the choice to the library, no engine to COLDSNAP_HYDRATE_ENGINE.

        Raises:
            ColdSnapError: ``hydrate.invalid``, ``hydrate.no-memory``, ``hydrate.no-device``.
        """
        self.library = library
        self.place = place
        settings = Settings(
            struct_bytes=ctypes.sizeof(Settings),
            place=place,
            io=io,
            threads=threads,
            slots=slots,
            device=device,
            slot_bytes=slot_bytes,
            block_bytes=block_bytes,
            digests=digests,
            engine=engine_asked() if engine is None else engine,
            waits=waits,
            cuda_library=os.fsencode(cuda_library) if cuda_library else None,
            cufile_library=os.fsencode(cufile_library) if cufile_library else None,
        )
        self._handle = ctypes.c_void_p()
        library.call("open", ctypes.byref(settings), ctypes.byref(self._handle))

    def __enter__(self) -> Session:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End its threads and give the ring back. Closed already: nothing to do."""
        if self._handle:
            self.library.end(self._handle)
            self._handle = ctypes.c_void_p()

    def opening(self) -> dict[str, float]:
        """Seconds of each part of its opening, by the clock, and ``open`` for all of it."""
        found = Opening(struct_bytes=ctypes.sizeof(Opening))
        self.library.call("opening_of", self._handle, ctypes.byref(found))
        parts = {name: getattr(found, f"{name}_ns") / 1e9 for name in _OPENING}
        return {"open": found.wall_ns / 1e9, **{name: s for name, s in parts.items() if s}}

    def read(self, transfer: Transfer, name_place: NamePlace | None = None) -> Metrics:
        """File to memory.

        Raises:
            ColdSnapError: as `failures.failure`; `name_place` words a failure that has a place.
        """
        return self._run("read", Prepared(transfer), transfer.path, name_place)

    def write(self, transfer: Transfer) -> tuple[Metrics, Made]:
        """Memory to a file that must not exist.

        Raises:
            ColdSnapError: as `failures.failure`; nothing is left of the file then.
        """
        prepared = Prepared(transfer, makes=True)
        return self._run("write", prepared, transfer.path, None), prepared.made()

    def copy_rate(self, address: int, size: int) -> Metrics:
        """Copy `size` bytes from the ring to device memory: the ceiling of this session."""
        metrics = Metrics(struct_bytes=ctypes.sizeof(Metrics))
        self.library.call("copy_rate", self._handle, address, size, ctypes.byref(metrics))
        return metrics

    def _run(
        self, call: str, prepared: Prepared, path: str, name_place: NamePlace | None
    ) -> Metrics:
        metrics = Metrics(struct_bytes=ctypes.sizeof(Metrics))
        code = self.library.code_of(
            call, self._handle, ctypes.byref(prepared.request), ctypes.byref(metrics)
        )
        if prepared.raised:
            raise prepared.raised[0]
        if code != Code.OK:
            extent, chunk = metrics.failed_extent, metrics.failed_chunk
            if name_place is not None and extent != NOWHERE_IN_PARTICULAR:
                named = name_place(code, extent, None if chunk == NOWHERE_IN_PARTICULAR else chunk)
                if named is not None:
                    raise named
            raise failure(code, self.library.message(), path)
        return metrics


def engine_asked() -> Engine:
    """What the environment asks for; what is no engine's name is the ring."""
    wanted = os.environ.get(ENGINE_VARIABLE, "").upper()
    return Engine[wanted] if wanted in ("CUFILE", "MEASURED") else Engine.RING


NamePlace = Callable[[int, int, "int | None"], "ColdSnapError | None"]
"""(code, number of the extent, number of the chunk) -> error in the pack's own words."""


def identify(library: Library, transfer: Transfer) -> Made:
    """SHA-256 of a whole file and of its extents, in one pass on one thread.

    Raises:
        ColdSnapError: as `failures.failure`.
    """
    prepared = Prepared(transfer)
    code = library.code_of("identify", ctypes.byref(prepared.request))
    if prepared.raised:
        raise prepared.raised[0]
    if code != Code.OK:
        raise failure(code, library.message(), transfer.path)
    return prepared.made()
