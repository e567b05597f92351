"""An ASGI gate in front of vLLM's API: 503 while the engine holds still, a count of requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_POLL_SECONDS = 0.02
_ALWAYS = frozenset({"/health", "/metrics", "/version", "/ping"})
_BODY = json.dumps(
    {
        "error": {
            "message": "the engine is paused for a snapshot; retry",
            "type": "paused",
            "code": 503,
        }
    }
).encode()


class Gate:
    """`closed` refuses new requests; `running` counts those inside, `served` those that were."""

    def __init__(self) -> None:
        self.closed = False
        self.running = 0
        self.served = 0
        self._opens: asyncio.Event | None = None

    def wrap(self, application: Application) -> Application:
        async def gated(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["path"] in _ALWAYS:
                await application(scope, receive, send)
                return
            while self._opens is not None:
                await self._opens.wait()
            if self.closed:
                await _refuse(send)
                return
            self.running += 1
            try:
                await application(scope, receive, send)
            finally:
                self.running -= 1
                self.served += 1

        return gated

    async def drained(self) -> None:
        """Returns when no request is inside."""
        while self.running:  # noqa: ASYNC110 - requests need not know that somebody waits
            await asyncio.sleep(_POLL_SECONDS)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """New requests wait before the gate for as long as this lasts."""
        opens = self._opens = asyncio.Event()
        try:
            yield
        finally:
            self._opens = None
            opens.set()


async def _refuse(send: Send) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"retry-after", b"1"),
        (b"connection", b"close"),
        (b"content-length", str(len(_BODY)).encode()),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": _BODY})
