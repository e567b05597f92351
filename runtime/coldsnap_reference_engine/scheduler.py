"""Who is computed next: prompts in pieces, then one token of every running sequence, in turn.

A step has a fixed width whoever asks, and each row of it is computed independently of the others
(`autotune` admits no kernel that breaks this), so the answer to a request does not depend on
what else runs.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from coldsnap_reference_engine.sampling import Sampler, Sampling, Token
from coldsnap_reference_engine.transformer import Span

if TYPE_CHECKING:
    import collections.abc
    from collections.abc import Callable

    from coldsnap_reference_engine.kernels import Floats
    from coldsnap_reference_engine.kv_cache import KvCache
    from coldsnap_reference_engine.plan import ExecutionPlan

FinishReason: TypeAlias = Literal["stop", "length", "cancelled", "error"]


@dataclass(frozen=True)
class Finished:
    reason: FinishReason
    message: str = ""


@dataclass(eq=False)
class Sequence:
    """One prompt and its growing answer; events come out of `events` until `Finished`."""

    prompt: tuple[int, ...]
    sampling: Sampling
    eos: int
    events: SimpleQueue[Token | Finished] = field(default_factory=SimpleQueue)
    created: float = field(default_factory=time.monotonic)
    slot: int = -1
    position: int = 0
    """Tokens whose keys and values are in the cache."""
    generated: int = 0
    next_token: int = -1
    is_cancelled: bool = False

    def __post_init__(self) -> None:
        self.sampler = Sampler(self.sampling)

    @property
    def is_prefilled(self) -> bool:
        return self.position >= len(self.prompt)

    def cancel(self) -> None:
        """Nobody wants the rest; its slot is free after the step in progress."""
        self.is_cancelled = True


class Stepper(Protocol):
    """A transformer, alone or leading others."""

    @property
    def plan(self) -> ExecutionPlan: ...

    @property
    def cache(self) -> KvCache: ...

    def prefill(self, span: Span, *, last: bool) -> Floats | None: ...

    def decode(self, spans: collections.abc.Sequence[Span]) -> Floats: ...


class Scheduler:
    """Owns the transformer: one thread computes, any thread submits."""

    def __init__(self, transformer: Stepper, broken: Callable[[str], None]) -> None:
        """`broken` is told when other ranks cannot be reached any more."""
        self._transformer = transformer
        self._broken = broken
        self._changed = threading.Condition()
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._free = list(range(transformer.cache.slots))
        self.prompt_tokens = 0
        self.generated_tokens = 0
        threading.Thread(target=self._serve, name="scheduler", daemon=True).start()

    @property
    def longest(self) -> int:
        """Tokens of prompt and answer together."""
        return self._transformer.cache.length

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    def submit(self, sequence: Sequence) -> None:
        with self._changed:
            self._waiting.append(sequence)
            self._changed.notify()

    def _serve(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._running:
                    self._changed.wait()
                while self._waiting and self._free:
                    sequence = self._waiting.popleft()
                    sequence.slot = self._free.pop()
                    self._running.append(sequence)
            try:
                self._step()
            except Exception as error:  # noqa: BLE001 - a step that fails ends its requests, not the engine
                reason = f"{type(error).__name__}: {error}"
                if isinstance(error, OSError):
                    self._broken(reason)
                for sequence in list(self._running):
                    self._finish(sequence, "error", reason)

    def _step(self) -> None:
        for sequence in [one for one in self._running if one.is_cancelled]:
            self._finish(sequence, "cancelled")
        unfinished = [one for one in self._running if not one.is_prefilled]
        if unfinished:
            self._prefill(unfinished[0])
        ready = [one for one in self._running if one.is_prefilled]
        width = self._transformer.plan.decode_width
        for start in range(0, len(ready), width):
            self._decode(ready[start : start + width])

    def _prefill(self, sequence: Sequence) -> None:
        remaining = len(sequence.prompt) - sequence.position
        count = min(remaining, self._transformer.plan.prefill_width(remaining))
        tokens = sequence.prompt[sequence.position : sequence.position + count]
        span = Span(sequence.slot, sequence.position, tokens)
        logits = self._transformer.prefill(span, last=count == remaining)
        sequence.position += count
        self.prompt_tokens += count
        if logits is not None:
            self._take(sequence, logits)

    def _decode(self, batch: list[Sequence]) -> None:
        spans = [Span(one.slot, one.position, (one.next_token,)) for one in batch]
        logits = self._transformer.decode(spans)
        for row, sequence in enumerate(batch):
            sequence.position += 1
            self._take(sequence, logits[row])

    def _take(self, sequence: Sequence, logits: Floats) -> None:
        token = sequence.sampler.choose(logits)
        sequence.generated += 1
        sequence.next_token = token.id
        self.generated_tokens += 1
        sequence.events.put(token)
        if token.id == sequence.eos and not sequence.sampling.ignore_eos:
            self._finish(sequence, "stop")
        elif sequence.generated >= sequence.sampling.max_tokens:
            self._finish(sequence, "length")

    def _finish(self, sequence: Sequence, reason: FinishReason, message: str = "") -> None:
        with self._changed:
            self._running.remove(sequence)
            self._free.append(sequence.slot)
        sequence.events.put(Finished(reason, message))
