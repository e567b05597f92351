"""A small engine for tests of templates: it has its bytes from the payload when it starts.

As an engine pack would: exports its "weights" where it is told to, leaves a start-up plan when it
is held still, tells of what it was started with.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import sys
from pathlib import Path

from coldsnap.artifact.pack import open_pack, write_pack_as

PRELOADED = "decimal" in sys.modules
FOLDER = Path("/run/coldsnap/unit/template")
HANDED = ("COLDSNAP_PAYLOAD", "COLDSNAP_STARTUP_PLAN", "COLDSNAP_PROVIDER", "CUDA_VISIBLE_DEVICES")


def load() -> str:
    pack = os.environ.get("COLDSNAP_PAYLOAD", "")
    if not Path(pack).is_file():
        return "seed of the model"
    with open_pack(pack, os.environ["COLDSNAP_PAYLOAD_INDEX"]) as reader:
        return reader.read("seed").decode()


SEED = load()
if folder := os.environ.get("COLDSNAP_EXPORT"):
    seed = b"seed of the payload"
    names = [Path(folder, name) for name in ("payload.pack", "payload.index.json")]
    write_pack_as(*names, [("seed", len(seed), seed)])


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        print(self.command, self.path, flush=True)

    def answer(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        handed = {name: os.environ.get(name) for name in HANDED}
        plan = handed["COLDSNAP_STARTUP_PLAN"]
        read = json.loads(Path(plan).read_text()) if plan else None
        told = {"pid": os.getpid(), "preloaded": PRELOADED, "seed": SEED, "argv": sys.argv}
        self.answer({**told, "handed": handed, "plan": read})

    def do_POST(self):
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size) or b"{}")
        if self.path == "/quiesce":
            (FOLDER / "startup-plan.json").write_text(json.dumps({"workers": [{"kv": 42}]}))
            self.answer({})
        elif self.path == "/v1/completions":
            text = hashlib.sha256(f"{SEED}/{body['prompt']}".encode()).hexdigest()[:8]
            marks = {"tokens": [text], "token_logprobs": [-0.5]}
            self.answer({"choices": [{"text": text, "logprobs": marks}]})
        else:
            self.answer({"provider": "native"})


print("engine starts", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
