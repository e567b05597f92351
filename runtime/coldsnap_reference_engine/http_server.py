"""HTTP over the standard library: bounded requests, JSON answers, errors in OpenAI's form."""

from __future__ import annotations

import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from coldsnap_reference_engine.gate import Gate, Phase, Unavailable

MAX_BODY = 8 << 20
_IDLE_SECONDS = 120.0
_LOOK_SECONDS = 0.01


class HttpError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str, kind: str, code: str = "", **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "code": code, **more}}


def unavailable(error: Unavailable) -> HttpError:
    return HttpError(503, str(error), "unavailable", error.phase.value)


class Server(ThreadingHTTPServer):
    """A thread per connection. Connections without a request in progress can be closed."""

    daemon_threads = True
    request_queue_size = 128
    # A restored engine binds nothing anew, but a restarted one must not wait for old connections.
    allow_reuse_address = True

    def __init__(self, host: str, port: int, handler: type[Handler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._connections: dict[socket.socket, bool] = {}
        self._guard = threading.Lock()
        super().__init__((host, port), handler)

    def start(self, name: str) -> None:
        threading.Thread(target=self.serve_forever, name=name, daemon=True).start()

    def mark(self, connection: socket.socket, *, busy: bool) -> None:
        with self._guard:
            self._connections[connection] = busy

    def forget(self, connection: socket.socket) -> None:
        with self._guard:
            self._connections.pop(connection, None)

    def close_idle(self) -> int:
        """Close kept-alive connections that wait for a request; their number."""
        with self._guard:
            idle = [connection for connection, busy in self._connections.items() if not busy]
        for connection in idle:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        return len(idle)

    def wait_idle(self, seconds: float) -> None:
        """Until no request is being answered, at most so long."""
        deadline = time.monotonic() + seconds
        while any(list(self._connections.values())) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no event."""
        del request, client_address


class Handler(BaseHTTPRequestHandler):
    """Subclasses fill `routes`: (method, path) -> name of a method without arguments."""

    protocol_version = "HTTP/1.1"
    server_version = "coldsnap-reference"
    sys_version = ""
    timeout = _IDLE_SECONDS
    disable_nagle_algorithm = True
    routes: ClassVar[dict[tuple[str, str], str]] = {}
    gate: ClassVar[Gate]
    server: Server

    def setup(self) -> None:
        super().setup()
        self.server.mark(self.connection, busy=False)

    def finish(self) -> None:
        self.server.forget(self.connection)
        super().finish()

    def do_GET(self) -> None:
        self._route("GET")

    def do_POST(self) -> None:
        self._route("POST")

    def read_json(self) -> Any:
        """The request's body; an absent one is an empty object.

        Raises:
            HttpError: 400 not JSON, 411 no length, 413 too long.
        """
        if "Transfer-Encoding" in self.headers:
            self.close_connection = True
            raise HttpError(411, "send the body with a Content-Length", "invalid_request_error")
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > MAX_BODY:
            self.close_connection = True
            message = f"the body may have up to {MAX_BODY} bytes"
            raise HttpError(413, message, "invalid_request_error")
        try:
            return json.loads(self.rfile.read(int(length)) or b"{}")
        except (ValueError, RecursionError) as error:
            message = f"the body is not JSON: {error}"
            raise HttpError(400, message, "invalid_request_error") from error

    def send_json(self, value: Any, status: int = 200, **headers: str) -> None:
        self.send_body(json.dumps(value).encode(), "application/json", status, **headers)

    def send_body(self, body: bytes, kind: str, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class cannot parse gets JSON and an HTTP head too."""
        del explain
        self.request_version = self.protocol_version
        self.close_connection = True
        error = HttpError(code, message or "the request is malformed", "invalid_request_error")
        self.send_json(error.body, code)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Requests are counted in the metrics, not logged."""

    def _route(self, method: str) -> None:
        self.server.mark(self.connection, busy=True)
        try:
            self._answer(method)
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True
        finally:
            self.server.mark(self.connection, busy=False)

    def _answer(self, method: str) -> None:
        path = self.path.partition("?")[0]
        try:
            if self.gate.phase is Phase.LOADING:
                self._unread_body()
                raise unavailable(Unavailable(Phase.LOADING))
            if (method, path) not in self.routes:
                self._unread_body()
                raise self._unknown(method, path)
            getattr(self, self.routes[method, path])()
        except HttpError as error:
            headers = {"Retry_After": "1"} if error.status == 503 else {}  # noqa: PLR2004
            self.send_json(error.body, error.status, **headers)

    def _unknown(self, method: str, path: str) -> HttpError:
        is_known = any(route == path for _, route in self.routes)
        message = f"{method} {path} is not served here"
        return HttpError(405 if is_known else 404, message, "invalid_request_error")

    def _unread_body(self) -> None:
        """A body that nobody reads would be taken for the next request."""
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True
