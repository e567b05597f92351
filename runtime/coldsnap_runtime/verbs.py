"""The verbs of the runtime: one line each. Modules are imported when their verb is called."""

from __future__ import annotations


class Verb:
    """Attributes:
    target: ``module:function`` below this package; called with (request, context).
    mutating: whether it changes the host, and so may run as a job.
    """

    __slots__ = ("mutating", "summary", "target")

    def __init__(self, target: str, summary: str, *, mutating: bool = True) -> None:
        self.target = target
        self.summary = summary
        self.mutating = mutating


def _reading(target: str, summary: str) -> Verb:
    return Verb(target, summary, mutating=False)


VERBS: dict[str, Verb] = {
    "verbs": _reading("verbs:list_verbs", "list the verbs"),
}


def list_verbs(request: object, context: object) -> dict[str, object]:
    del request, context
    rows = [
        {"verb": name, "mutating": verb.mutating, "summary": verb.summary}
        for name, verb in sorted(VERBS.items())
    ]
    return {"verbs": rows}
