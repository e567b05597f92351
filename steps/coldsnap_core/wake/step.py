from __future__ import annotations

from coldsnap.sdk import Engine, HttpCall
from coldsnap_core.transition import Transition
from coldsnap_core.wake.spec import WakeSpec


class Wake(Transition[WakeSpec]):
    type = "core.wake"
    summary = "wake a sleeping engine"
    spec = WakeSpec
    verb = "unit.wake"
    settled = frozenset({"serving"})

    def forward(self, engine: Engine) -> tuple[HttpCall, ...]:
        return engine.wake()

    def backward(self, engine: Engine) -> tuple[str, tuple[HttpCall, ...]]:
        return "unit.sleep", engine.sleep()
