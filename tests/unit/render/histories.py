"""Folded journals of runs, as the engine gives them, for report tests."""

from __future__ import annotations

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.history import History, InstanceHistory, State
from coldsnap.engine.preview import InstanceKey

START = 1_796_059_476.0
RUN = "01KBA2C3D4E5F6G7H8J9K0M1N2"


def envelope(*spans: tuple[str, float, float], parent: str | None = None, size: int = 0) -> dict:
    """Spans (name, start, seconds) on a host whose boot was 1000 s before the run."""
    return {
        "format": 1,
        "clocks": [
            {"id": "boot", "source": "CLOCK_BOOTTIME", "origin_unix_ns": int((START - 1000) * 1e9)}
        ],
        "spans": [
            {
                "id": f"s{number}",
                "name": name,
                "clock": "boot",
                "start_offset_seconds": 1000 + start,
                "duration_seconds": seconds,
                "status": "ok",
                "attributes": {"method": "mmap", **({"bytes": str(size)} if size else {})},
                **({"parent": parent} if parent and number else {}),
            }
            for number, (name, start, seconds) in enumerate(spans)
        ],
    }


def step(
    name: str, host: str, start: float, seconds: float, unit: str = "u0", **more
) -> InstanceHistory:
    values = {
        "type": f"core.{name}",
        "state": State.DONE,
        "seconds": seconds,
        "started": START + start,
        "offset": start + seconds,
        "attempts": 1,
        "touched": True,
        "change": {"summary": f"{name} it"},
        **more,
    }
    return InstanceHistory(InstanceKey(f"demo.{name}", host, unit), **values)


def history(instances: list[InstanceHistory], state: str, seconds: float) -> History:
    return History(
        {"run": RUN, "plan": {"name": "qwen3-8b-restore"}},
        START,
        ended=START + seconds,
        state=state,
        instances={instance.key: instance for instance in instances},
    )


def restored(hosts: tuple[str, ...] = ("gpu-1", "gpu-2")) -> History:
    found = []
    for host in hosts:
        found += [
            step("probe", host, 0, 0.2, "", state=State.UNCHANGED, touched=False),
            step("stage", host, 0.2, 1.4, ""),
            step("evict", host, 1.7, 0.4),
            step(
                "restore",
                host,
                2.1,
                1.1,
                outputs={
                    "generation": 12,
                    "artifact": "sha256:" + "9b" * 32,
                    "cold_start_seconds": 49.8,
                    "cold_start": {
                        "seconds": 49.8,
                        "phases": [
                            {"name": "namespaces", "start": 0.0, "seconds": 0.1, "depth": 0},
                            {"name": "ready", "start": 0.1, "seconds": 48.0, "depth": 0},
                            {"name": "weights", "start": 20.0, "seconds": 9.0, "depth": 1},
                            {"name": "first token", "start": 49.6, "seconds": 0.2, "depth": 0},
                        ],
                    },
                    "provider": {
                        "policy": "auto",
                        "used": "recovery",
                        "faults": [{"provider": "native", "code": "pack.damaged", "reason": "x"}],
                    },
                    "process_image": {"rung": "ext", "left": []},
                    "sizes": {"process": 4 << 30, "payload": 16 << 30, "kv_discarded": 42 << 30},
                    "timing": envelope(
                        ("process", 2.15, 0.9), ("read image", 2.2, 0.5), parent="s0"
                    ),
                },
            ),
            step(
                "hydrate",
                host,
                3.25,
                0.5,
                outputs={
                    "bytes": 16 << 30,
                    "timing": envelope(("hydrate", 3.3, 0.4), size=16 << 30),
                },
            ),
            step(
                "accept",
                host,
                3.8,
                0.2,
                outputs={
                    "first_token_seconds": 2.7,
                    "same": True,
                    "timing": envelope(("first token", 3.82, 0.1)),
                },
            ),
        ]
    return history(found, "succeeded", 4.2)


def captured() -> History:
    sizes = {"process": 220 << 20, "payload": 200 << 20, "shm": 4096, "kv_discarded": 42 << 30}
    return history(
        [
            step("launch", "local", 0, 9.5, outputs={"timing": envelope(("cold start", 0.1, 9.0))}),
            step("checkpoint", "local", 9.6, 1.2, outputs={"capture": {"sizes": sizes}}),
            step("publish", "local", 10.9, 0.6, outputs={"artifact": "sha256:" + "9b" * 32}),
        ],
        "succeeded",
        11.6,
    )


def failed() -> History:
    error = ColdSnapError("criu.dump-failed", "unit u0 <b>could</b> not be dumped", where="gpu-1")
    return history(
        [
            step("stage", "gpu-1", 0.2, 1.4, "", state=State.RECOVERED),
            step("checkpoint", "gpu-1", 2, 3.0, state=State.FAILED, error=error, attempts=3),
            step("publish", "gpu-1", 0, 0, state=State.SKIPPED, touched=False, reason="needs it"),
        ],
        "recovered",
        5.4,
    )
