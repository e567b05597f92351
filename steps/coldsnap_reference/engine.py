"""The reference engine, told as data: how it starts, holds still, serves on and is asked.

The engine itself is `coldsnap_reference_engine` of the runtime pack. Its control port, on the
loopback inside the unit and never published, carries the calls; weights leave it as a payload
pack in ``{dir}`` and come back from ``{payload}``, so no image holds a byte of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coldsnap.sdk import Acceptance, ColdSnapError, HttpCall, Launch, Model, Unit

CONTROL_PORT = 8901
"""Inside the unit."""
DRAIN_SECONDS = 60.0
"""How long running requests may take to end before a capture gives up; the engine serves on."""

_PROGRAM = "coldsnap_reference_engine"
_OWN_OPTIONS = ("--host", "--port", "--control-port")
_ENVIRONMENT = {
    # Arenas per thread keep freed memory that the process image would hold.
    "MALLOC_ARENA_MAX": "2",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}


_PHASES = tuple(
    (name, rf"coldsnap-reference: {said}: (?P<seconds>[\d.]+) s")
    for name, said in (
        ("imports", "imports and ports"),
        ("weights", "weights"),
        ("tuning", "tuning"),
    )
)


class ReferenceEngine:
    """Implements `coldsnap.sdk.Engine`."""

    name = "reference"
    drivers = ("criu",)

    def launch(self, unit: Unit, model: Model, host_vars: Mapping[str, Any]) -> Launch:
        """The unit's command, or the engine of the runtime pack on the plan's model.

        Raises:
            ColdSnapError: ``reference.no-model``, ``reference.option-owned``,
                ``reference.port-taken``.
        """
        command = unit.command or _default_command(unit, model, host_vars)
        _check(command, unit)
        served = unit.ports[0]
        host = "127.0.0.1" if unit.network == "private" else served.host
        return Launch(
            phases=_PHASES,
            argv=(
                *command,
                *("--host", host, "--port", str(served.inner)),
                *("--control-port", str(CONTROL_PORT)),
            ),
            env=_ENVIRONMENT,
            inside=(_PROGRAM,),
        )

    def ready(self, unit: Unit) -> HttpCall:
        return HttpCall("GET", "/health", timeout=5.0, port=unit.ports[0].name)

    def quiesce(self) -> tuple[HttpCall, ...]:
        # The pack is written while it still serves; writing takes as long as the disk needs.
        body = {"dir": "{dir}", "drain_seconds": DRAIN_SECONDS}
        return (_control("/coldsnap/quiesce", body, timeout=1800.0, expect={"state": "quiesced"}),)

    def resume(self) -> tuple[HttpCall, ...]:
        body = {"dir": "{dir}"}
        return (_control("/coldsnap/resume", body, timeout=600.0, expect={"state": "serving"}),)

    def hydrate(self) -> tuple[HttpCall, ...]:
        body = {"payload": "{payload}", "index": "{index}", "provider": "{provider}"}
        return (_control("/coldsnap/hydrate", body, timeout=600.0, expect={"state": "serving"}),)

    def export(self) -> tuple[HttpCall, ...]:
        body = {"dir": "{dir}/materialized"}
        return (_control("/coldsnap/export", body, timeout=1800.0, expect={}),)

    def sleep(self) -> tuple[HttpCall, ...]:
        body = {"level": 2, "drain_seconds": DRAIN_SECONDS}
        return (_control("/sleep", body, timeout=120.0, expect={"is_sleeping": True}),)

    def wake(self) -> tuple[HttpCall, ...]:
        return (_control("/wake_up", {}, timeout=600.0, expect={"is_sleeping": False}),)

    def acceptance(self, model: Model) -> Acceptance:
        return Acceptance(body={"model": model.id, "ignore_eos": True})


def _control(path: str, body: Any, timeout: float, expect: Mapping[str, Any]) -> HttpCall:
    return HttpCall("POST", path, body, timeout, str(CONTROL_PORT), expect)


def _default_command(unit: Unit, model: Model, host_vars: Mapping[str, Any]) -> tuple[str, ...]:
    if not model.path:
        raise ColdSnapError(
            "reference.no-model",
            "nothing says which model the engine serves",
            f"unit {unit.id}",
            remedy=f"give the plan model.path, a folder that {_PROGRAM} make-model wrote",
        )
    python = str(host_vars.get("python") or "python3")
    served = ("--served-model-name", model.id)
    return (python, "-m", _PROGRAM, "serve", "--model", model.path, *served)


def _check(command: tuple[str, ...], unit: Unit) -> None:
    for option in _OWN_OPTIONS:
        if any(word == option or word.startswith(f"{option}=") for word in command):
            raise ColdSnapError(
                "reference.option-owned",
                f"{option} is set by ColdSnap",
                f"unit {unit.id}",
                remedy=f"take {option} out of the unit's command; ports: says where it serves",
            )
    if any(port.inner == CONTROL_PORT for port in unit.ports):
        raise ColdSnapError(
            "reference.port-taken",
            f"port {CONTROL_PORT} inside the unit is the engine's control port",
            f"unit {unit.id}",
            remedy="choose another inner port",
        )
