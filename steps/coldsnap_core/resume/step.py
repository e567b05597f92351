from __future__ import annotations

from coldsnap.sdk import Engine, HttpCall
from coldsnap_core.resume.spec import ResumeSpec
from coldsnap_core.transition import Transition


class Resume(Transition[ResumeSpec]):
    type = "core.resume"
    summary = "let a quiesced engine serve again"
    spec = ResumeSpec
    verb = "unit.resume"
    settled = frozenset({"serving"})

    def forward(self, engine: Engine) -> tuple[HttpCall, ...]:
        return engine.resume()
