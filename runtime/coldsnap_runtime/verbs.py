"""The verbs of the runtime: one line each. Modules are imported when their verb is called."""

from __future__ import annotations


class Verb:
    """One verb.

    Attributes:
        target: ``module:function`` below this package; called with (request, context), or with
            the command line's Arguments if `plain`.
        mutating: whether it changes the host, and so may run as a job.
        plain: reads no request from stdin.
    """

    __slots__ = ("mutating", "plain", "summary", "target")

    def __init__(
        self, target: str, summary: str, *, mutating: bool = True, plain: bool = False
    ) -> None:
        self.target = target
        self.summary = summary
        self.mutating = mutating
        self.plain = plain


def _reads(target: str, summary: str) -> Verb:
    return Verb(target, summary, mutating=False)


def _plain(target: str, summary: str) -> Verb:
    return Verb(target, summary, mutating=False, plain=True)


VERBS: dict[str, Verb] = {
    "job.cancel": _plain("job_control:cancel", "end a job: TERM, grace, KILL of its session"),
    "job.follow": _plain("job_follow:follow", "new events of a job from an offset on (long poll)"),
    "job.gc": _plain("job_control:collect", "remove the folders of jobs that ended long ago"),
    "job.list": _plain("job_control:list_jobs", "all jobs of this host with their states"),
    "job.wait": _plain("job_follow:wait", "events of a job, then its result"),
    "lease.acquire": Verb("lease:acquire", "take a unit for a run, or prolong that"),
    "lease.release": Verb("lease:release", "give a unit back"),
    "lease.renew": Verb("lease:renew", "prolong the lease that a run holds"),
    "lease.show": _reads("lease:show", "who holds a unit"),
    "probe": _reads("probe:probe", "what this host can do, with reasons and remedies"),
    "verbs": _plain("verbs:list_verbs", "list the verbs"),
}


def list_verbs(arguments: object) -> dict[str, object]:
    del arguments
    rows = [
        {"verb": name, "mutating": verb.mutating, "summary": verb.summary}
        for name, verb in sorted(VERBS.items())
    ]
    return {"verbs": rows}
