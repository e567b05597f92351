"""The control port: for the unit controller, on the loopback of the unit, never exposed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_reference_engine.gate import Phase
from coldsnap_reference_engine.http_server import Handler, HttpError

if TYPE_CHECKING:
    from coldsnap_reference_engine.engine import Engine
    from coldsnap_reference_engine.lifecycle import Lifecycle

_DRAIN_SECONDS = 60.0
_DAY = 86400.0
_PROVIDERS = ("native", "recovery", "auto")
_CONFLICTS = ("engine.wrong-phase",)


class ControlHandler(Handler):
    engine: ClassVar[Engine]
    lifecycle: ClassVar[Lifecycle]
    routes: ClassVar[dict[tuple[str, str], str]] = {
        ("GET", "/health"): "get_health",
        ("GET", "/coldsnap/state"): "get_state",
        ("GET", "/is_sleeping"): "get_is_sleeping",
        ("POST", "/coldsnap/quiesce"): "post_quiesce",
        ("POST", "/coldsnap/resume"): "post_resume",
        ("POST", "/coldsnap/hydrate"): "post_hydrate",
        ("POST", "/coldsnap/export"): "post_export",
        ("POST", "/sleep"): "post_sleep",
        ("POST", "/wake_up"): "post_wake_up",
    }

    def get_health(self) -> None:
        self.send_json({"status": "ok", "state": self.engine.gate.phase.value})

    def get_state(self) -> None:
        """What the engine is and how it came to be; for people and for the acceptance's record."""
        engine = self.engine
        self.send_json(
            {
                "state": engine.gate.phase.value,
                "detail": engine.gate.detail,
                "requests": engine.gate.inside,
                "plan": engine.plan.to_json(),
                "plan_digest": engine.plan.digest,
                "start_seconds": engine.timeline.spans,
                "tuning": engine.measured.to_json() if engine.measured else None,
            }
        )

    def get_is_sleeping(self) -> None:
        self.send_json({"is_sleeping": self.engine.gate.phase is Phase.SLEEPING})

    def post_quiesce(self) -> None:
        body = self._object()
        folder = Path(self._text(body, "dir"))
        seconds = self._seconds(body, "drain_seconds")
        self._do(lambda: self.lifecycle.quiesce(folder, seconds))

    def post_resume(self) -> None:
        """From the pack that quiesce left in ``dir``; from the model folder if that is no good."""
        body = self._object()
        folder = Path(self._text(body, "dir"))
        self._do(lambda: self.lifecycle.resume(folder))

    def post_hydrate(self) -> None:
        body = self._object()
        if body.get("provider", "native") not in _PROVIDERS:
            raise HttpError(
                400, f"provider must be one of {', '.join(_PROVIDERS)}", "invalid_request_error"
            )
        if body.get("provider") != "recovery":
            self._text(body, "payload")
            self._text(body, "index")
        if body.get("method", "copy") not in ("copy", "mmap"):
            raise HttpError(400, "method must be copy or mmap", "invalid_request_error")
        self._do(lambda: self.lifecycle.hydrate(body))

    def post_export(self) -> None:
        folder = Path(self._text(self._object(), "dir"))
        self._do(lambda: self.lifecycle.export(folder))

    def post_sleep(self) -> None:
        level = parse_qs(urlsplit(self.path).query).get("level", ["1"])[0]
        body = self._object()
        level = str(body.get("level", level))
        if level not in ("1", "2"):
            raise HttpError(400, "level must be 1 or 2", "invalid_request_error")
        seconds = self._seconds(body, "drain_seconds")
        self._do(lambda: self.lifecycle.sleep(int(level), seconds))

    def post_wake_up(self) -> None:
        self._object()
        self._do(self.lifecycle.wake)

    def send_body(self, body: bytes, kind: str, status: int = 200, **headers: str) -> None:
        """No connection of the controller is left open when an image is taken."""
        self.close_connection = True
        super().send_body(body, kind, status, **headers, Connection="close")

    def _do(self, action: Callable[[], dict[str, Any]]) -> None:
        try:
            result = action()
        except ColdSnapError as error:
            self.send_json({"error": error.to_json()}, 409 if error.code in _CONFLICTS else 500)
        except (OSError, ValueError, MemoryError) as error:
            message = f"{type(error).__name__}: {error}"
            self.send_json({"error": ColdSnapError("engine.failed", message).to_json()}, 500)
        else:
            self.send_json(result)

    def _object(self) -> dict[str, Any]:
        body = self.read_json()
        if not isinstance(body, dict):
            raise HttpError(400, "the body must be a JSON object", "invalid_request_error")
        return body

    @staticmethod
    def _text(body: dict[str, Any], name: str) -> str:
        value = body.get(name)
        if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
            raise HttpError(400, f"{name} must be an absolute path", "invalid_request_error")
        return value

    @staticmethod
    def _seconds(body: dict[str, Any], name: str) -> float:
        value = body.get(name, _DRAIN_SECONDS)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _DAY:
            raise HttpError(400, f"{name} must be seconds", "invalid_request_error")
        return float(value)
