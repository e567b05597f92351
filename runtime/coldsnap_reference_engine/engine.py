"""The engine: everything that a running server consists of, put together once at the start."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coldsnap_reference_engine import metrics
from coldsnap_reference_engine.autotune import Measured, tune
from coldsnap_reference_engine.blas import BlasThreads
from coldsnap_reference_engine.checkpoint import open_checkpoint
from coldsnap_reference_engine.config import read_config
from coldsnap_reference_engine.gate import Gate, Phase
from coldsnap_reference_engine.generate import WEIGHTS
from coldsnap_reference_engine.kernels import Crew, Multiplier
from coldsnap_reference_engine.kv_cache import KvCache
from coldsnap_reference_engine.plan import ExecutionPlan, untuned
from coldsnap_reference_engine.ranks import JOIN_SECONDS, Placement, ranks_of
from coldsnap_reference_engine.scheduler import Scheduler
from coldsnap_reference_engine.timeline import Timeline, log
from coldsnap_reference_engine.tokenizer import load_tokenizer
from coldsnap_reference_engine.transformer import Alone, Transformer
from coldsnap_reference_engine.weights import CHECKPOINT_LAYOUTS, Weights


@dataclass(frozen=True)
class Options:
    model: Path
    """Folder with config.json, tokenizer.json, model.safetensors."""
    served_name: str
    slots: int = 4
    """Sequences in progress at once."""
    context: int = 2048
    """Longest prompt and answer together, in tokens."""
    placement: Placement = field(default_factory=Placement)
    tune_seconds: float = 12.0
    """Bound of the warm-up's search; 0 serves without it."""


class Engine:
    """Loads a model and warms up; serves when `gate` is turned to serving."""

    def __init__(self, options: Options, timeline: Timeline, gate: Gate) -> None:
        self.gate = gate
        self.options = options
        self.timeline = timeline
        self.model_name = options.served_name
        self.started = int(time.time())
        self.first_token_seconds = metrics.Histogram()
        self._results: dict[str, int] = dict.fromkeys(("ok", "bad_request", "unavailable"), 0)
        self.threads = len(os.sched_getaffinity(0))
        self.config = read_config(options.model)
        self.tokenizer = load_tokenizer(options.model / "tokenizer.json")
        timeline.mark("tokenizer")
        placement = options.placement
        self.ranks = ranks_of(placement, self.config)
        self.weights = Weights(self.config, placement.rank, placement.size)
        self.load_checkpoint(CHECKPOINT_LAYOUTS)
        timeline.mark("weights")
        self.transformer = self._transformer()
        self.measured: Measured | None = None
        if options.tune_seconds:
            self.measured = self._tune(options.tune_seconds)
            timeline.mark("tuning")
        self.ranks.join(JOIN_SECONDS)
        stepper = self.ranks.attach(self.transformer, self._break)
        self.scheduler = Scheduler(stepper, self._break)

    @property
    def plan(self) -> ExecutionPlan:
        return self.transformer.plan

    def _tune(self, seconds: float) -> Measured:
        def agree(width: int) -> int:
            self.ranks.join(JOIN_SECONDS)
            return self.ranks.agree(width)

        size = self.options.placement.size
        # Ranks time their shares on their own: they are not all here yet.
        self.transformer.collective = Alone(size)
        measured = tune(self.transformer, seconds, agree if size > 1 else None)
        self.transformer.collective = self.ranks.collective
        log(measured.summary)
        return measured

    def _break(self, reason: str) -> None:
        log(f"broken: {reason}")
        self.gate.turn(Phase.BROKEN, reason)

    def load_checkpoint(self, layouts: Any = None) -> None:
        """Fill the weights from the model folder, in the plan's layouts or those given."""
        with open_checkpoint(self.options.model / WEIGHTS) as checkpoint:
            self.weights.load(checkpoint, layouts or self.plan.layouts, self.threads)

    def count(self, result: str) -> None:
        self._results[result] += 1

    def metrics_text(self) -> str:
        scheduler = self.scheduler
        results = {f'result="{name}"': count for name, count in self._results.items()}
        phases = {f'phase="{p.value}"': float(self.gate.phase is p) for p in Phase}
        spans = {f'part="{name}"': seconds for name, seconds in self.timeline.spans.items()}
        first = self.first_token_seconds
        return metrics.text(
            (
                metrics.counter("requests", "Completions by result.", results),
                metrics.counter("prompt_tokens", "Prompt tokens.", {"": scheduler.prompt_tokens}),
                metrics.counter(
                    "generated_tokens", "Tokens generated.", {"": scheduler.generated_tokens}
                ),
                metrics.gauge("requests_running", "In progress.", {"": scheduler.running}),
                metrics.gauge("requests_waiting", "Waiting for a slot.", {"": scheduler.waiting}),
                metrics.gauge("phase", "1 for the engine's phase.", phases),
                metrics.gauge("start_seconds", "Time that parts of the start took.", spans),
                metrics.gauge("tuned_tokens_per_second", "Decoding at warm-up.", self._speeds()),
                first.lines("first_token_seconds", "From arrival to the first token."),
            )
        )

    def _speeds(self) -> dict[str, float]:
        if self.measured is None:
            return {}
        return {
            f'plan="{plan}",sequences="{count}"': speed
            for (plan, count), speed in self.measured.speeds.items()
        }

    def _transformer(self) -> Transformer:
        config, options = self.config, self.options
        context = min(options.context, config.max_position_embeddings)
        cache = KvCache(
            options.slots,
            config.num_hidden_layers,
            config.num_key_value_heads // options.placement.size,
            context,
            config.head_dim,
        )
        blas = BlasThreads()
        multiplier = Multiplier(Crew(self.threads), blas)
        plan, collective = untuned(blas.initial), self.ranks.collective
        return Transformer(config, self.weights, cache, multiplier, plan, collective)
