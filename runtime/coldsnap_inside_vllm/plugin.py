"""vLLM's endpoint plugin: puts the gate before the API and opens the control port."""

from __future__ import annotations

import os
from typing import Any

from coldsnap_inside_vllm.control import Control
from coldsnap_inside_vllm.gate import Gate

PORT_VARIABLE = "COLDSNAP_CONTROL_PORT"


class ColdSnapEndpoint:
    """Protocol ``vllm.plugins.endpoint_plugins.interface.EndpointPlugin``."""

    name = "coldsnap"
    required_tasks = None

    def __init__(self) -> None:
        self._gate = Gate()

    def attach_router(self, app: Any) -> None:
        """Wrap the application; it has no route of its own on the serving port."""
        gate = self._gate

        class GateMiddleware:
            def __init__(self, app: Any) -> None:
                self._app = gate.wrap(app)

            async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
                await self._app(scope, receive, send)

        app.add_middleware(GateMiddleware)

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Listen on the control port when the unit controller names one."""
        del state, args
        port = os.environ.get(PORT_VARIABLE, "")
        if engine_client is None or not port.isdigit():
            return
        self._control = Control(engine_client, self._gate)
        await self._control.start(int(port))
