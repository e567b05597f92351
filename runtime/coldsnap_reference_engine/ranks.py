"""Tensor parallelism: every rank holds a share of each matrix, rank 0 serves and leads.

Rank 0 announces each step; all ranks compute their share and meet in two sums per layer and one
gathering of logits. Links are closed before a snapshot and made anew after a restore.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_reference_engine import links
from coldsnap_reference_engine.config import ModelConfig
from coldsnap_reference_engine.kernels import Floats
from coldsnap_reference_engine.kv_cache import KvCache
from coldsnap_reference_engine.plan import ExecutionPlan
from coldsnap_reference_engine.scheduler import Stepper
from coldsnap_reference_engine.transformer import Alone, Collective, Span, Transformer

JOIN_SECONDS = 600.0
"""Ranks load and warm up at their own pace."""


@dataclass(frozen=True)
class Placement:
    """One rank of `size`; `master` is where rank 0 listens."""

    rank: int = 0
    size: int = 1
    master: tuple[str, int] = ("127.0.0.1", 0)


class Ranks(Protocol):
    """What the engine asks of its companions."""

    collective: Collective

    def agree(self, width: int) -> int:
        """Rank 0's decoding width."""

    def attach(self, transformer: Transformer, lost: Callable[[str], None]) -> Stepper:
        """Begin to work with the others; what the scheduler shall use.

        `lost` is told when rank 0 cannot be reached any more.
        """

    def join(self, seconds: float) -> None:
        """Link up; idempotent. Raises ColdSnapError ``ranks.absent``, ``ranks.differ``."""

    def part(self, seconds: float) -> None:
        """Close the links, when no step is running.

        Raises:
            ColdSnapError: ``ranks.still-serving`` when rank 0 goes on for so long.
        """


class Single:
    """An engine without companions."""

    def __init__(self) -> None:
        self.collective: Collective = Alone()

    def agree(self, width: int) -> int:
        return width

    def attach(self, transformer: Transformer, lost: Callable[[str], None]) -> Stepper:
        del lost
        return transformer

    def join(self, seconds: float) -> None:
        del seconds

    def part(self, seconds: float) -> None:
        del seconds


class Lead:
    """Rank 0; also the collective of its own transformer."""

    def __init__(self, placement: Placement, config: ModelConfig) -> None:
        self.size = placement.size
        self.collective: Collective = self
        self._identity = _identity(placement, config)
        self._listener = links.listen(*placement.master)
        self._links: list[links.Link] = []

    def agree(self, width: int) -> int:
        self.announce({"do": "width", "width": width})
        return width

    def attach(self, transformer: Transformer, lost: Callable[[str], None]) -> Stepper:
        del lost
        return LeadingTransformer(transformer, self)

    def join(self, seconds: float) -> None:
        if not self._links:
            self._links = links.accept(self._listener, self._identity, seconds)

    def part(self, seconds: float) -> None:
        del seconds
        for link in self._links:
            try:
                link.send({"do": "part"})
                link.close()
            except OSError:
                continue
        self._links = []

    def announce(self, command: dict[str, Any]) -> None:
        for link in self._links:
            link.send(command)

    def all_reduce(self, values: Floats) -> Floats:
        total = values.copy()
        # In the order of ranks, so that the same addends give the same bits.
        for link in self._links:
            total += link.receive_array(values.shape)
        for link in self._links:
            link.send_array(total)
        return total

    def all_gather(self, values: Floats) -> Floats:
        parts = [values, *(link.receive_array(values.shape) for link in self._links)]
        return np.concatenate(parts, axis=1)


class LeadingTransformer:
    """Rank 0's transformer as the scheduler sees it: every step is announced first."""

    def __init__(self, own: Transformer, lead: Lead) -> None:
        self._own = own
        self._lead = lead

    @property
    def cache(self) -> KvCache:
        return self._own.cache

    @property
    def plan(self) -> ExecutionPlan:
        return self._own.plan

    def prefill(self, span: Span, *, last: bool) -> Floats | None:
        self._lead.announce({"do": "prefill", "span": asdict(span), "last": last})
        return self._own.prefill(span, last=last)

    def decode(self, spans: Sequence[Span]) -> Floats:
        self._lead.announce({"do": "decode", "spans": [asdict(span) for span in spans]})
        return self._own.decode(spans)


class Follower:
    """Another rank: computes what rank 0 announces, in a thread of its own."""

    def __init__(self, placement: Placement, config: ModelConfig) -> None:
        self.size = placement.size
        self.collective: Collective = self
        self._placement = placement
        self._identity = _identity(placement, config)
        self._link: links.Link | None = None
        self._attached: tuple[Transformer, Callable[[str], None]] | None = None
        self._parted = threading.Event()
        self._parted.set()

    def agree(self, width: int) -> int:
        del width
        command = self._linked.receive()
        return int(command["width"])

    def attach(self, transformer: Transformer, lost: Callable[[str], None]) -> Stepper:
        self._attached = transformer, lost
        self._follow()
        return transformer

    def join(self, seconds: float) -> None:
        if self._link is None:
            rank, master = self._placement.rank, self._placement.master
            self._link = links.connect(master, rank, self._identity, seconds)
            self._follow()

    def part(self, seconds: float) -> None:
        if not self._parted.wait(seconds):
            raise ColdSnapError(
                "ranks.still-serving",
                f"rank 0 still serves after {seconds:g} s",
                remedy="quiesce rank 0 first, or at the same time",
            )

    def _follow(self) -> None:
        if self._attached is not None:
            self._parted.clear()
            threading.Thread(
                target=self._serve, args=self._attached, name="follower", daemon=True
            ).start()

    def all_reduce(self, values: Floats) -> Floats:
        self._linked.send_array(values)
        return self._linked.receive_array(values.shape)

    def all_gather(self, values: Floats) -> Floats:
        self._linked.send_array(values)
        return values

    @property
    def _linked(self) -> links.Link:
        if self._link is None:
            raise ConnectionError("there is no link to rank 0")
        return self._link

    def _serve(self, transformer: Transformer, lost: Callable[[str], None]) -> None:
        try:
            while (command := self._linked.receive())["do"] != "part":
                _compute(transformer, command)
        except (OSError, KeyError, TypeError, ValueError) as error:
            lost(f"the link to rank 0 broke: {error}")
        if self._link is not None:
            self._link.close()
        self._link = None
        self._parted.set()


def ranks_of(placement: Placement, config: ModelConfig) -> Ranks:
    """The companions of a rank.

    Raises:
        ColdSnapError: ``ranks.indivisible``. OSError: rank 0's port is taken.
    """
    if placement.size == 1:
        return Single()
    return Follower(placement, config) if placement.rank else Lead(placement, config)


def _compute(transformer: Transformer, command: dict[str, Any]) -> None:
    if command["do"] == "prefill":
        transformer.prefill(_span(command["span"]), last=bool(command["last"]))
    elif command["do"] == "decode":
        transformer.decode([_span(span) for span in command["spans"]])
    else:
        raise ValueError(f"unknown command {command['do']!r}")


def _span(value: dict[str, Any]) -> Span:
    tokens = tuple(int(token) for token in value["tokens"])
    return Span(int(value["slot"]), int(value["start"]), tokens)


def _identity(placement: Placement, config: ModelConfig) -> dict[str, Any]:
    for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size"):
        if getattr(config, name) % placement.size:
            raise ColdSnapError(
                "ranks.indivisible",
                f"{name} {getattr(config, name)} cannot be shared by {placement.size} ranks",
            )
    return {"size": placement.size, "config": config.to_json()}
