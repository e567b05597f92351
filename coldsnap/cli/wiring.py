"""How a command gets at the layers below: the fleet, the runtime pack."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from coldsnap.artifact.errors import ColdSnapError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coldsnap.cli.session import Session
    from coldsnap.fleet import InventoryFleet
    from coldsnap.render.hosts import HostAnswer
    from coldsnap.sdk.host import FactRequest, Host
    from coldsnap.sdk.step import RuntimeRef

_PATIENCE: Final = 1.0
"""Seconds after which a build says that it is one."""
_LOOKED_AT: Final = 1 << 16
_NO_PACK: Final = "sha256:" + "0" * 64


def fleet_of(session: Session) -> InventoryFleet:
    """The hosts of the inventory in force; use it in a ``with`` block.

    Raises:
        ColdSnapError: ``inventory.*``
    """
    from coldsnap.fleet import open_fleet

    return open_fleet(session.settings["inventory"])


def start_fleet_early(session: Session) -> None:
    """Let the process that talks to hosts start while the plan is loaded.

    Not for what has no machine in it, and not where the inventory will be refused anyway.
    """
    from coldsnap.fleet import early

    inventory = session.settings["inventory"]
    if inventory != "@local":
        if not Path(inventory).is_file():
            return  # it is missing, or a pipe, which can be read only once
        try:
            with Path(inventory).open("rb") as file:
                is_fake = b"@fake" in file.read(_LOOKED_AT)
        except (OSError, ValueError):
            return
        if is_fake:
            return
    early.begin()


def select(fleet: InventoryFleet, hosts: Sequence[str]) -> tuple[str, ...]:
    """Names of the hosts meant; all of them when none is named.

    Raises:
        ColdSnapError: ``inventory.unknown-host``.
    """
    named = [name for selector in hosts or ("all",) for name in fleet.select(selector)]
    return tuple(dict.fromkeys(named))


def ask_each(fleet: InventoryFleet, names: Sequence[str], question: Any) -> list[HostAnswer]:
    """One fact of each host, all hosts at the same time; a host's failure is its own.

    `question` makes the `FactRequest` of a host.
    """
    from coldsnap.render.hosts import HostAnswer

    errors = dict(fleet.connect(names))
    reached = [name for name in names if name not in errors]
    requests: dict[str, list[FactRequest]] = {n: [question(fleet.host(n))] for n in reached}
    errors.update(fleet.prefetch(requests))
    answers = []
    for name in names:
        if name in errors:
            answers.append(HostAnswer(name, {}, errors[name]))
            continue
        answers.append(_asked(fleet.host(name), requests[name][0]))
    return answers


def _asked(host: Host, request: FactRequest) -> HostAnswer:
    from coldsnap.render.hosts import HostAnswer

    try:
        value = host.ask(request)
    except ColdSnapError as error:
        return HostAnswer(host.name, {}, error)
    if not isinstance(value, dict):
        wrong = ColdSnapError("host.fact-failed", "gave no answer that can be read", host.name)
        return HostAnswer(host.name, {}, wrong)
    if isinstance(value.get("error"), dict):
        return HostAnswer(host.name, {}, ColdSnapError.from_json(value["error"]))
    return HostAnswer(host.name, value)


def is_fake(fleet: InventoryFleet) -> bool:
    """Whether no host of the inventory is a machine: then no pack is built for it."""
    return all(entry.connector == "fake" for entry in fleet.inventory.hosts.values())


def runtime_of(session: Session, fleet: InventoryFleet) -> RuntimeRef:
    """The runtime pack for these hosts, built if this version of it was not built before.

    Raises:
        ColdSnapError: ``criu.*``, ``runtime.*``
    """
    from coldsnap.sdk.step import RuntimeRef

    if is_fake(fleet):
        return RuntimeRef(_NO_PACK, "", _NO_PACK, 0)
    return built_runtime(session)


def built_runtime(session: Session) -> RuntimeRef:
    """The runtime pack of this version, from the cache or built now."""
    from threading import Timer

    from coldsnap.store.runtime import build

    use_criu(session)
    # Mostly it is there already; only a build that takes its time is worth a word.
    slow = Timer(_PATIENCE, session.story, ["building the runtime pack (done once per version)"])
    slow.daemon = True
    slow.start()
    try:
        return build()
    finally:
        slow.cancel()


def runtime_at_hand(session: Session, fleet: InventoryFleet) -> RuntimeRef | None:
    """The runtime pack, unless making it would fetch something first; None then."""
    import shutil

    from coldsnap.store.criu import SUITES
    from coldsnap.store.criu_bundle import cached_bundle

    use_criu(session)
    suite = os.environ.get("COLDSNAP_CRIU_SUITE")
    at_hand = bool(os.environ.get("COLDSNAP_CRIU") or shutil.which("criu"))
    at_hand = at_hand or any(cached_bundle(name) for name in ([suite] if suite else SUITES))
    if not is_fake(fleet) and not at_hand:
        return None
    try:
        return runtime_of(session, fleet)
    except ColdSnapError as error:
        session.error(error)
        return None


@contextmanager
def unpacked_criu(runtime: RuntimeRef | None) -> Iterator[str | None]:
    """A folder with the CRIU of a pack, as it would be staged; for looking at this machine."""
    import tempfile

    from coldsnap.store.archive import unpack

    if runtime is None or not runtime.archive:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="coldsnap-") as folder:
        unpack(runtime.archive, folder, under="criu/")
        yield folder


def use_criu(session: Session) -> None:
    """Hand the ``criu`` setting to the finder of CRIU, which reads the environment."""
    criu = session.settings["criu"]
    if criu:
        os.environ["COLDSNAP_CRIU"] = criu
