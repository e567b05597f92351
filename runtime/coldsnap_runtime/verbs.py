"""The verbs of the runtime: one line each. Modules are imported when their verb is called."""

from __future__ import annotations


class Verb:
    """One verb.

    Attributes:
        target: ``module:function`` below this package; called with (request, context), or with
            the command line's Arguments if `plain`.
        mutating: whether it changes the host, and so may run as a job.
        plain: reads no request from stdin.
        dry: changes nothing when its request says ``dry_run``.
    """

    __slots__ = ("dry", "mutating", "plain", "summary", "target")

    def __init__(
        self,
        target: str,
        summary: str,
        *,
        mutating: bool = True,
        plain: bool = False,
        dry: bool = False,
    ) -> None:
        self.target = target
        self.summary = summary
        self.mutating = mutating
        self.plain = plain
        self.dry = dry

    def only_reads(self, request: dict[str, object]) -> bool:
        return not self.mutating or (self.dry and request.get("dry_run") is True)


def _reads(target: str, summary: str) -> Verb:
    return Verb(target, summary, mutating=False)


def _plain(target: str, summary: str) -> Verb:
    return Verb(target, summary, mutating=False, plain=True)


VERBS: dict[str, Verb] = {
    "batch": _reads("batch:batch", "several reading verbs in one start"),
    "job.cancel": _plain("job_control:cancel", "end a job: TERM, grace, KILL of its session"),
    "job.follow": _plain("job_follow:follow", "new events of a job from an offset on (long poll)"),
    "job.gc": _plain("job_control:collect", "remove the folders of jobs that ended long ago"),
    "job.list": _plain("job_control:list_jobs", "all jobs of this host with their states"),
    "job.wait": _plain("job_follow:wait", "events of a job, then its result"),
    "lease.acquire": Verb("lease:acquire", "take a unit for a run, or prolong that"),
    "lease.release": Verb("lease:release", "give a unit back"),
    "lease.renew": Verb("lease:renew", "prolong the lease that a run holds"),
    "lease.show": _reads("lease:show", "who holds a unit"),
    "pack.gc": Verb("pack_verbs:collect", "remove packs and images that nothing needs"),
    "pack.verify": _reads("pack_check:verify", "is every file of this runtime pack what it was"),
    "page-cache": Verb("page_cache:page_cache", "files into the page cache, or all out of it"),
    "probe": _reads("probe_verb:probe", "what this host can do, with reasons and remedies"),
    "store.collect": Verb(
        "store_verbs:collect", "retention, then sweep of unreferenced blobs", dry=True
    ),
    "store.delete": Verb("store_verbs:delete", "take an artifact out of a store's index"),
    "store.has": _reads("store_reading:has", "which blobs a store has"),
    "store.inspect": _reads("store_reading:inspect", "an artifact's descriptor and sizes"),
    "store.list": _reads("store_reading:list_artifacts", "all artifacts of a store"),
    "store.publish": Verb("store_verbs:publish", "commit a capture as an artifact"),
    "store.resolve": _reads("store_reading:resolve", "the artifact of a name, digest or request"),
    "store.tag": Verb("store_verbs:tag", "move names to an artifact, or away"),
    "store.verify": Verb("store_verbs:verify", "every file of an artifact against its digest"),
    "unit.accept": Verb("accept:accept", "ask prompts; record or compare the answers"),
    "unit.call": Verb("unit_calls:call", "HTTP calls to the engine of a unit"),
    "unit.checkpoint": Verb("unit_verbs:checkpoint", "dump a quiesced unit; it serves on"),
    "unit.discard": Verb("unit_verbs:discard", "remove a dump that is not wanted any more"),
    "unit.expose": Verb("unit_verbs:expose", "hand the host ports to a generation"),
    "unit.hydrate": Verb("unit_hydrate:hydrate", "model bytes back into a restored engine"),
    "unit.launch": Verb("unit_verbs:launch", "start an engine cold and wait until it is ready"),
    "unit.materialize": Verb("materialize:materialize", "weights of a live engine as a payload"),
    "unit.quiesce": Verb("unit_calls:quiesce", "drain an engine and hold it still for a while"),
    "unit.restore": Verb("restore_verb:restore", "bring an artifact back as a new generation"),
    "unit.resume": Verb("unit_calls:resume", "let a quiesced engine serve again"),
    "unit.sleep": Verb("unit_calls:sleep", "let an engine give its memory back"),
    "unit.status": _reads("unit_status:status", "the generations on this host and their state"),
    "unit.stop": Verb("unit_verbs:stop", "end a generation"),
    "unit.wake": Verb("unit_calls:wake", "wake a sleeping engine"),
    "verbs": _plain("verbs:list_verbs", "list the verbs"),
}


def list_verbs(arguments: object) -> dict[str, object]:
    del arguments
    rows = [
        {"verb": name, "mutating": verb.mutating, "summary": verb.summary}
        for name, verb in sorted(VERBS.items())
    ]
    return {"verbs": rows}
