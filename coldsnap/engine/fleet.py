"""The hosts of an inventory, as the engine needs them; `coldsnap.fleet` implements it.

The engine never imports the implementation: the command line hands it in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.sdk.host import FactRequest, Host


class Fleet(Protocol):
    """Methods block and are called from many threads at once."""

    @property
    def path(self) -> str:
        """Path of the inventory file, as the user gave it."""

    @property
    def sha256(self) -> str:
        """``sha256:<hex>`` of hosts, groups and variables; kept in saved plans."""

    def select(self, selector: str) -> tuple[str, ...]:
        """Names of the hosts that a host name, a group or ``all`` means, in inventory order.

        Reads the inventory only; connects to nothing.

        Raises:
            ColdSnapError: ``inventory.unknown-host`` with the near names as remedy.
        """

    def host(self, name: str) -> Host:
        """The host of that name: always the same object; needs no connection yet."""

    def connect(self, names: Sequence[str]) -> Mapping[str, ColdSnapError]:
        """Connect all at the same time; idempotent, and tries failed ones again.

        Returns:
            The error (``host.unreachable``) of each that cannot be reached; empty if all can.
        """

    def prefetch(
        self, requests: Mapping[str, Sequence[FactRequest]]
    ) -> Mapping[str, ColdSnapError]:
        """Ask these facts in ONE round trip per host, all hosts at the same time.

        Equal requests are asked once. The answers (a fact's own error too) are kept and given by
        `Host.ask` and `Host.ask_all` until `forget` of that host, or until a `perform` or `upload`
        on it; a new prefetch asks again.

        Returns:
            The error of each host that could not be asked at all; a fact that failed alone is
            no such error: `ask` raises it.
        """

    def forget(self, names: Sequence[str]) -> None:
        """Drop the prefetched answers of these hosts."""

    def cancel(self) -> None:
        """End every `perform` and `upload` that runs now, and its remote processes, at once.

        They raise ``run.cancelled``. Calls made later are served (recover, release of leases).
        Callable from a signal handler's thread; returns without waiting.
        """

    def close(self) -> None:
        """Disconnect, end the child process; idempotent."""
