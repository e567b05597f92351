"""The way into vLLM's API server: ``--middleware coldsnap_inside_vllm.middleware.ColdSnapGate``.

Every vLLM that we support wraps its application in the classes that this option names, outermost
last, so no plugin interface of one version is needed. The gate stands before the API; with the
first message (the server's start) the control port opens.
"""

from __future__ import annotations

import os
from typing import Any

from coldsnap_inside_vllm.control import Control
from coldsnap_inside_vllm.engine_memory import memory_of
from coldsnap_inside_vllm.gate import Application, Gate, Receive, Send

PORT_VARIABLE = "COLDSNAP_CONTROL_PORT"


class ColdSnapGate:
    """An ASGI middleware; one per API server process."""

    def __init__(self, app: Application) -> None:
        self._gate = Gate()
        self._app = self._gate.wrap(app)
        self._control: Control | None = None

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if self._control is None:
            await self._open(scope.get("app"))
        await self._app(scope, receive, send)

    async def _open(self, app: Any) -> None:
        """Listen on the control port when the unit controller names one."""
        engine = getattr(getattr(app, "state", None), "engine_client", None)
        port = os.environ.get(PORT_VARIABLE, "")
        if engine is None or not port.isdigit():
            return
        self._control = Control(memory_of(engine), self._gate)
        await self._control.start(int(port))
