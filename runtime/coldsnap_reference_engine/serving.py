"""The serving port: completions, models, health, metrics."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterator
from queue import Empty
from typing import TYPE_CHECKING, Any, ClassVar

from coldsnap_reference_engine.api import (
    Answer,
    BadRequest,
    Choice,
    CompletionRequest,
    parse_completion,
    usage_of,
)
from coldsnap_reference_engine.gate import Phase, Unavailable
from coldsnap_reference_engine.http_server import Handler, HttpError, unavailable
from coldsnap_reference_engine.scheduler import Finished, Sequence

if TYPE_CHECKING:
    from coldsnap_reference_engine.engine import Engine
    from coldsnap_reference_engine.sampling import Token

_LOOK_SECONDS = 0.5
_INVALID = "invalid_request_error"


class ServingHandler(Handler):
    engine: ClassVar[Engine]
    _looked = 0.0
    routes: ClassVar[dict[tuple[str, str], str]] = {
        ("GET", "/health"): "get_health",
        ("GET", "/metrics"): "get_metrics",
        ("GET", "/v1/models"): "get_models",
        ("GET", "/is_sleeping"): "get_is_sleeping",
        ("POST", "/v1/completions"): "post_completions",
    }

    def get_health(self) -> None:
        gate = self.engine.gate
        if gate.phase is not Phase.SERVING:
            raise unavailable(Unavailable(gate.phase, gate.detail))
        self.send_json({"status": "ok"})

    def get_metrics(self) -> None:
        text = self.engine.metrics_text()
        self.send_body(text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    def get_models(self) -> None:
        model = {
            "id": self.engine.model_name,
            "object": "model",
            "created": self.engine.started,
            "owned_by": "coldsnap",
            "max_model_len": self.engine.scheduler.longest,
        }
        self.send_json({"object": "list", "data": [model]})

    def get_is_sleeping(self) -> None:
        self.send_json({"is_sleeping": self.engine.gate.phase is Phase.SLEEPING})

    def post_completions(self) -> None:
        body = self.read_json()
        if rank := self.engine.options.placement.rank:
            raise HttpError(503, f"rank {rank} follows rank 0; ask that", "unavailable", "follower")
        try:
            with self.engine.gate.entered():
                self._complete(body)
                self.engine.count("ok")
        except Unavailable as error:
            self.engine.count("unavailable")
            raise unavailable(error) from error
        except BadRequest as error:
            self.engine.count("bad_request")
            text, parameter = str(error), error.parameter or None
            raise HttpError(error.status, text, _INVALID, param=parameter) from error

    def _complete(self, body: Any) -> None:
        engine = self.engine
        request = parse_completion(
            body, engine.tokenizer, engine.model_name, engine.scheduler.longest
        )
        sequences = [
            Sequence(prompt, request.sampling, engine.tokenizer.eos) for prompt in request.prompts
        ]
        choices = [
            Choice(index, engine.tokenizer, request.sampling) for index in range(len(sequences))
        ]
        for sequence in sequences:
            engine.scheduler.submit(sequence)
        try:
            send = self._stream if request.stream else self._send_whole
            send(request, sequences, choices)
        finally:
            for sequence in sequences:
                sequence.cancel()

    def _send_whole(
        self, request: CompletionRequest, sequences: list[Sequence], choices: list[Choice]
    ) -> None:
        parts = ["".join(self._pieces(*pair)) for pair in zip(sequences, choices, strict=True)]
        done = [choice.to_json(text) for choice, text in zip(choices, parts, strict=True)]
        answer = Answer(self.engine.model_name)
        self.send_json(answer.to_json(done, usage_of(request, choices)))

    def _stream(
        self, request: CompletionRequest, sequences: list[Sequence], choices: list[Choice]
    ) -> None:
        """Server-sent events; the connection's end is the end of the body."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Connection", "close")
        self.end_headers()
        answer = Answer(self.engine.model_name)
        try:
            for sequence, choice in zip(sequences, choices, strict=True):
                since = 0
                for piece in self._pieces(sequence, choice):
                    self._event(answer.to_json([choice.to_json(piece, since)]))
                    since = len(choice.tokens)
            if request.include_usage:
                self._event(answer.to_json([], usage_of(request, choices)))
        except HttpError as error:
            self._event(error.body)
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, value: Any) -> None:
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        self.wfile.flush()

    def _pieces(self, sequence: Sequence, choice: Choice) -> Iterator[str]:
        """Text of each token as it comes, and the rest with the choice's reason set."""
        while choice.reason is None:
            event = self._next(sequence)
            if not isinstance(event, Finished):
                self._note_first(sequence, choice)
                piece = choice.feed(event)
                if choice.reason is None:
                    yield piece
                    continue
                yield piece
                return
            if event.reason == "error":
                raise HttpError(500, f"the step failed: {event.message}", "internal_error")
            choice.reason = event.reason
            yield choice.text.finish()

    def _next(self, sequence: Sequence) -> Token | Finished:
        """The next event; looks now and then whether the client is still there."""
        while True:
            if time.monotonic() - self._looked > _LOOK_SECONDS:
                self._looked = time.monotonic()
                if self._client_is_gone():
                    raise BrokenPipeError
            try:
                return sequence.events.get(timeout=_LOOK_SECONDS)
            except Empty:
                continue

    def _client_is_gone(self) -> bool:
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        return bool(poll.poll(0)) and not self.connection.recv(1, socket.MSG_PEEK)

    def _note_first(self, sequence: Sequence, choice: Choice) -> None:
        if not choice.tokens:
            self.engine.first_token_seconds.observe(time.monotonic() - sequence.created)
