"""The control port: a small HTTP server on loopback inside the unit, never the serving port.

POST /quiesce  {"drain_seconds": 60, ...}  refuse, drain, give memory back
POST /resume   {...}                       have the memory again, then serve
POST /export   {"dir": folder}             write the payload while serving
GET  /state                                {"closed": bool, "running": n}

What else a body may hold goes to `coldsnap_inside_vllm.engine_memory`.

Bodies are bounded; anything that is not one of these is 404. Connections are closed after one
answer, so that none is open when the process tree is dumped.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from coldsnap_inside_vllm.engine_memory import EngineMemory
from coldsnap_inside_vllm.gate import Gate
from coldsnap_inside_vllm.later import Unfinished, finish_in_a_pause

_MAX_HEAD = 16 << 10
_MAX_BODY = 64 << 10
_DRAIN_SECONDS = 60.0


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """An HTTP answer other than 200."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Control:
    def __init__(self, memory: EngineMemory, gate: Gate) -> None:
        self._memory = memory
        self._gate = gate
        self._lock = asyncio.Lock()
        self._finishing: asyncio.Task[None] | None = None
        self._routes: dict[tuple[str, str], Callable[[dict[str, Any]], Awaitable[Any]]] = {
            ("POST", "/quiesce"): self._quiesce,
            ("POST", "/resume"): self._resume,
            ("POST", "/export"): self._export,
            ("GET", "/state"): self._state,
        }

    async def start(self, port: int) -> None:
        """Listen on 127.0.0.1:`port` until the process ends."""
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", port, limit=_MAX_HEAD, reuse_address=True
        )

    async def _quiesce(self, body: dict[str, Any]) -> dict[str, Any]:
        """Memory that was not given back whole is what `_resume` brings back."""
        async with self._lock:
            self._gate.closed = True
            try:
                await self._drain(float(body.get("drain_seconds", _DRAIN_SECONDS)))
            except BaseException:
                self._gate.closed = False
                raise
            released = await self._memory.release(body)
        return {"quiesced": True, **released}

    async def _drain(self, seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while self._gate.running:
            if asyncio.get_running_loop().time() > deadline:
                raise Refused(409, f"{self._gate.running} requests still run after {seconds:.0f} s")
            await asyncio.sleep(0.02)

    async def _resume(self, body: dict[str, Any]) -> dict[str, Any]:
        """Idempotent. Requests are refused until everything is back."""
        async with self._lock:
            answer = await self._memory.take_back(body)
            self._gate.closed = False
        await self._finish_later()
        return {"quiesced": False, **answer}

    async def _finish_later(self) -> None:
        memory = self._memory
        if self._finishing is not None or not isinstance(memory, Unfinished):
            return
        if await memory.is_unfinished():
            finishing = finish_in_a_pause(memory, self._gate, self._lock)
            self._finishing = asyncio.create_task(finishing)

    async def _export(self, body: dict[str, Any]) -> dict[str, Any]:
        """Write the weights while requests run; nothing is released before it ends."""
        async with self._lock:
            if self._gate.closed:
                raise Refused(409, "the engine is held still")
            return await self._memory.export(str(body.get("dir", "")))

    async def _state(self, body: dict[str, Any]) -> dict[str, Any]:
        del body
        return {"closed": self._gate.closed, "running": self._gate.running}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            status, answer = 200, await self._answer(reader)
        except Refused as refused:
            status, answer = refused.status, {"error": str(refused)}
        except Exception as error:  # noqa: BLE001 - the caller is told, the engine serves on
            status, answer = 500, {"error": f"{type(error).__name__}: {error}"}
        body = json.dumps(answer).encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
            "content-type: application/json\r\nconnection: close\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        try:
            await writer.drain()
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> Any:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise Refused(400, "no HTTP request") from None
        request, *lines = head.split("\r\n")
        method, _, rest = request.partition(" ")
        route = self._routes.get((method, rest.partition(" ")[0]))
        if route is None:
            raise Refused(404, f"no route {request!r}")
        return await route(await _body(reader, lines))


async def _body(reader: asyncio.StreamReader, lines: list[str]) -> dict[str, Any]:
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)
    }
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > _MAX_BODY:
        raise Refused(400, "bad content-length")
    data = await reader.readexactly(int(length))
    value = json.loads(data) if data else {}
    if not isinstance(value, dict):
        raise Refused(400, "the body is not a JSON object")
    return value
