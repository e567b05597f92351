"""A small engine for tests: deterministic completions, states, and faults on demand.

Its "weights" are a seed that quiesce writes to a file and forgets, and that resume and hydrate
read back: an engine whose payload is lost answers differently.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import sys
import time
from pathlib import Path

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.pack import open_pack, write_pack_as

PORT = int(sys.argv[1])
SLOW_START = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
BALLAST = bytearray(os.urandom(int(sys.argv[3]) if len(sys.argv) > 3 else 0))
"""Memory for process images."""
state = {"seed": "seed-1", "serving": True, "asleep": False, "calls": 0, "fail": ""}


def tokens(prompt: str, count: int) -> list[tuple[str, float]]:
    found = []
    text = f"{state['seed']}/{prompt}"
    for _ in range(count):
        text = hashlib.sha256(text.encode()).hexdigest()
        found.append((" " + text[:4], -int(text[4:8], 16) / 65536))
    return found


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        print(self.command, self.path, flush=True)

    def answer(self, value, status=200):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def body(self):
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")

    def do_GET(self):  # noqa: C901  (a table of faults)
        if self.path == "/health":
            self.answer({"ok": True, "nested": {"a": 1, "b": [2]}})
        elif self.path == "/state":
            self.answer({**state, "pid": os.getpid()})
        elif self.path.startswith("/die"):
            print("fatal: told to die", flush=True)
            os._exit(int(self.path.rpartition("=")[2]))
        elif self.path == "/garbage":
            self.wfile.write(b"this is no HTTP\r\n\r\n")
        elif self.path == "/drip":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            for _ in range(1000):
                self.wfile.write(b"x")
                time.sleep(0.05)
        elif self.path == "/huge":
            self.send_response(200)
            self.end_headers()
            for _ in range(20):
                self.wfile.write(b"x" * (1 << 20))
            self.close_connection = True
        elif self.path == "/hang":
            print("hangs", flush=True)
            time.sleep(600)
        elif self.path == "/busy":
            state["calls"] += 1
            self.answer({"calls": state["calls"]}, 200 if state["calls"] >= 4 else 503)
        else:
            self.answer({"error": "not here"}, 404)

    def do_POST(self):
        body = self.body()
        name = self.path.strip("/").replace("/", "_")
        if state["fail"] == name:
            self.answer({"error": f"{name} fails on demand"}, 500)
            return
        getattr(self, f"post_{name}", self.post_unknown)(body)

    def post_unknown(self, body):
        self.answer({"error": "not here"}, 404)

    def post_fail(self, body):
        state["fail"] = body["name"]
        self.answer({})

    def post_echo(self, body):
        self.answer(body)

    def post_quiesce(self, body):
        if state["seed"]:
            seed = state["seed"].encode()
            names = [Path(body["dir"], name) for name in ("payload.pack", "payload.index.json")]
            write_pack_as(*names, [("seed", len(seed), seed)])
        state.update(seed="", serving=False)
        self.answer({"kv_bytes": 4096})

    def post_resume(self, body):
        try:
            with open_pack(body["payload"], body["index"]) as pack:
                state.update(seed=pack.read("seed").decode(), serving=True)
        except (ColdSnapError, OSError):  # from its "model folder", as a good engine does
            state.update(seed="seed-1", serving=True)
        self.answer({})

    def post_hydrate(self, body):
        provider = body.get("provider", "native")
        if provider == "recovery":
            self.recover({"provider": "recovery"})
            return
        try:
            with open_pack(body["payload"], body["index"]) as pack:
                state.update(seed=pack.read("seed").decode(), serving=True)
        except ColdSnapError as error:
            if provider != "auto":
                self.answer({"error": str(error)}, 500)
                return
            told = {"provider_code": error.code, "provider_reason": error.message}
            self.recover({"provider": "recovery", **told})
            return
        self.answer({"from": body["payload"], "provider": "native"})

    def recover(self, answer):
        state.update(seed=Path(os.environ["MODEL"], "model.safetensors").read_text(), serving=True)
        self.answer(answer)

    def post_seed(self, body):
        state.update(seed=body["seed"])
        self.answer({})

    def post_export(self, body):
        folder = Path(body["dir"])
        folder.mkdir(exist_ok=True)
        seed = state["seed"].encode()
        names = [folder / name for name in ("payload.pack", "payload.index.json")]
        write_pack_as(*names, [("seed", len(seed), seed)])
        self.answer({})

    def post_sleep(self, body):
        state.update(asleep=True)
        self.answer({})

    def post_wake(self, body):
        state.update(asleep=False)
        self.answer({})

    def post_v1_completions(self, body):
        if not state["serving"] or state["asleep"]:
            self.answer({"error": "not serving"}, 503)
            return
        found = tokens(body["prompt"], body["max_tokens"])
        if body.get("stream"):
            self.stream(found)
            return
        text = "".join(token for token, _ in found)
        marks = {"tokens": [t for t, _ in found], "token_logprobs": [p for _, p in found]}
        self.answer({"choices": [{"text": text, "logprobs": marks}]})

    def stream(self, found):
        if state["fail"] == "stream":
            self.answer({"error": "no streaming here"}, 400)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.close_connection = True
        for token, _ in found:
            event = {"choices": [{"text": token}]}
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n")


print("engine starts", flush=True)
time.sleep(SLOW_START)
http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
