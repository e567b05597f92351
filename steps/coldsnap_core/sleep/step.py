from __future__ import annotations

from coldsnap.sdk import Engine, HttpCall
from coldsnap_core.sleep.spec import SleepSpec
from coldsnap_core.transition import Transition


class Sleep(Transition[SleepSpec]):
    type = "core.sleep"
    summary = "let the engine give its memory back and stay"
    spec = SleepSpec
    verb = "unit.sleep"
    settled = frozenset({"sleeping"})
    pauses = True

    def forward(self, engine: Engine) -> tuple[HttpCall, ...]:
        return engine.sleep()

    def backward(self, engine: Engine) -> tuple[str, tuple[HttpCall, ...]]:
        return "unit.wake", engine.wake()
