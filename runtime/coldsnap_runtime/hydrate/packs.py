"""Whole packs by the library: hydrated, or verified by all cores."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.pack_index import PAYLOAD_REMEDY
from coldsnap_runtime.hydrate.report import Report
from coldsnap_runtime.hydrate.session import (
    Cancel,
    Entry,
    Made,
    Progress,
    Session,
    Transfer,
    identify,
)
from coldsnap_runtime.hydrate.structures import DIGEST_BYTES, Algorithm, Code

if TYPE_CHECKING:
    from coldsnap.artifact.pack import PackReader
    from coldsnap.artifact.pack_index import Extent, PackIndex
    from coldsnap_runtime.hydrate.session import NamePlace

ALGORITHMS = {"sha256": Algorithm.SHA256, "blake3": Algorithm.BLAKE3}


class Packed(Protocol):
    """A body and what its index says of it, such as an open pack."""

    @property
    def name(self) -> str: ...

    @property
    def index(self) -> PackIndex: ...


def hydrate_pack(
    session: Session,
    pack: PackReader,
    addresses: Mapping[str, int],
    *,
    verify: bool = True,
    seconds: float = 0,
    cancel: Cancel | None = None,
    progress: Progress | None = None,
) -> Report:
    """Bring extents of a pack into memory; after an error that memory must not be used.

    Args:
        session: its place says whether the addresses are of host or device memory.
        pack: an open pack; its index says what is right.
        addresses: extent id -> address of at least the extent's length. Others stay out.
        verify: check every chunk's digest on the way.
        seconds: deadline; 0: none.
        cancel: ends the call early.
        progress: gets bytes done and in all.

    Raises:
        ColdSnapError: ``pack.no-such-extent``, ``pack.chunk-differs``, ``pack.short``,
            ``pack.grown``, ``pack.changed``, ``hydrate.*``, ``file.*``.
    """
    for extent_id in addresses:
        pack.index.find(extent_id)
    extents = [extent for extent in pack.index.extents if extent.id in addresses]
    places = [addresses[extent.id] for extent in extents]
    transfer = _transfer(pack, extents, places, verify, seconds, cancel, progress)
    return Report.of(session.read(transfer, _namer(pack, extents)))


def verify_pack(
    session: Session,
    pack: PackReader,
    *,
    identity: bool = True,
    cancel: Cancel | None = None,
    progress: Progress | None = None,
) -> Report:
    """Check a pack on disk: every chunk and the padding by all cores, the identity beside them.

    Args:
        session: one whose place is NOWHERE.
        pack: an open pack.
        identity: also the SHA-256 of the body and of each extent, which one core must do alone.
            Not needed where the index itself is vouched for: its chunk digests say it all.
        cancel: ends the call early.
        progress: gets bytes done and in all.

    Raises:
        ColdSnapError: ``pack.chunk-differs``, ``pack.extent-differs``, ``pack.padding``,
            ``pack.body-differs``, ``pack.short``, ``pack.grown``, ``pack.changed``, ``file.*``.
    """
    report, made = check_pack(session, pack, identity=identity, cancel=cancel, progress=progress)
    if made is not None:
        _check_identity(pack, made)
    return report


def check_pack(
    session: Session,
    pack: Packed,
    *,
    identity: bool,
    cancel: Cancel | None = None,
    progress: Progress | None = None,
) -> tuple[Report, Made | None]:
    """As `verify_pack`, but the identity, if wanted, is given back and not compared.

    Raises:
        ColdSnapError: ``pack.chunk-differs``, ``pack.padding``, ``pack.short``, ``pack.grown``,
            ``pack.changed``, ``file.*``.
    """
    stop = cancel or Cancel()
    extents = list(pack.index.extents)
    total = pack.index.body.bytes
    chunks = _transfer(pack, extents, [0] * len(extents), True, 0, stop, None)
    beside = _Beside(session, pack, stop) if identity else None
    whole = Transfer(
        **{**vars(chunks), "check_padding": True, "progress": _both(progress, beside, total)}
    )
    try:
        report = Report.of(session.read(whole, _namer(pack, extents)))
    except BaseException:
        stop.set()
        raise
    finally:
        made = beside.join(progress, total) if beside else None
    return report, made


class _Beside:
    """The identity, on a thread of its own."""

    def __init__(self, session: Session, pack: Packed, cancel: Cancel) -> None:
        self.done = 0
        self._made: Made | None = None
        self._error: BaseException | None = None
        entries = [(e.offset, e.length, 0) for e in pack.index.extents]
        self._transfer = Transfer(
            pack.name,
            pack.index.body.bytes,
            entries,
            pack.index.chunk.bytes,
            Algorithm.UNVERIFIED,
            cancel=cancel,
            progress=self._count,
        )
        self._cancel = cancel
        self._thread = threading.Thread(target=self._work, args=(session,))
        self._thread.start()

    def join(self, progress: Progress | None, total: int) -> Made | None:
        """Wait for it.

        Raises:
            ColdSnapError: what it met, unless it was cancelled for another's failure.
        """
        while self._thread.is_alive():
            self._thread.join(0.1)
            if progress is not None and not self._cancel.flag.value:
                try:
                    progress(min(self.done, total), total)
                except BaseException:
                    self._cancel.set()
                    self._thread.join()
                    raise
        if self._error is not None and not self._cancel.flag.value:
            raise self._error
        return self._made

    def _count(self, done: int, _: int) -> None:
        self.done = done

    def _work(self, session: Session) -> None:
        try:
            self._made = identify(session.library, self._transfer)
        except BaseException as error:  # noqa: BLE001 - raised by join
            self._error = error


def _both(progress: Progress | None, beside: _Beside | None, total: int) -> Progress | None:
    """What is told is the slower of the two."""
    if progress is None or beside is None:
        return progress
    return lambda done, _: progress(min(done, beside.done), total)


def _check_identity(pack: Packed, made: Made) -> None:
    for number, extent in enumerate(pack.index.extents):
        found = made.extents[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES].hex()
        if f"sha256:{found}" != extent.sha256:
            raise _damaged(pack, "extent-differs", extent, "its digest")
    if f"sha256:{made.body.hex()}" != pack.index.body.sha256:
        message = f"{pack.name} is not the pack {pack.index.body.sha256}"
        raise ColdSnapError("pack.body-differs", message)


def _transfer(
    pack: Packed,
    extents: Sequence[Extent],
    addresses: Sequence[int],
    verify: bool,
    seconds: float,
    cancel: Cancel | None,
    progress: Progress | None,
) -> Transfer:
    entries: list[Entry] = [
        (extent.offset, extent.length, address)
        for extent, address in zip(extents, addresses, strict=True)
    ]
    return Transfer(
        path=pack.name,
        file_bytes=pack.index.body.bytes,
        extents=entries,
        chunk_bytes=pack.index.chunk.bytes,
        algorithm=_algorithm(pack.index) if verify else Algorithm.UNVERIFIED,
        digests=_digests(extents) if verify else None,
        seconds=seconds,
        cancel=cancel,
        progress=progress,
    )


def _algorithm(index: PackIndex) -> Algorithm:
    return ALGORITHMS[index.chunk.algorithm]


def _digests(extents: Sequence[Extent]) -> bytes:
    return bytes.fromhex("".join("".join(extent.chunks) for extent in extents))


def _namer(pack: Packed, extents: Sequence[Extent]) -> NamePlace:
    def name(code: int, number: int, chunk: int | None) -> ColdSnapError | None:
        extent = extents[number]
        if code == Code.PADDING:
            return _damaged(pack, "padding", extent, "the zeros behind it")
        if code != Code.DIFFERS or chunk is None:
            return None
        start = chunk * pack.index.chunk.bytes
        end = min(start + pack.index.chunk.bytes, extent.length)
        place = f"chunk {chunk} (bytes {extent.offset + start} to {extent.offset + end})"
        return _damaged(pack, "chunk-differs", extent, place)

    return name


def _damaged(pack: Packed, reason: str, extent: Extent, place: str) -> ColdSnapError:
    message = f"{pack.name} is damaged: extent {extent.id!r}, {place}"
    return ColdSnapError(f"pack.{reason}", message, remedy=PAYLOAD_REMEDY)
