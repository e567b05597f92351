"""The same image by its digest, as plans name images: pulled of a registry that is made for it."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from python_image import make_layer

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


def pull_pinned(folder: Path, packages: Sequence[Path] = ()) -> str:
    """``127.0.0.1:PORT/python@sha256:...``, which the docker daemon has then."""
    layer, home = make_layer(folder, packages)
    blobs = {digest(layer.read_bytes()): layer.read_bytes()}
    (layer_digest,) = blobs
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
        "os": "linux",
        "config": {"Env": [f"PYTHONHOME={home}"]},
        "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
        "history": [{"created": "2026-01-01T00:00:00Z"}],
    }
    config_bytes = json.dumps(config).encode()
    blobs[digest(config_bytes)] = config_bytes
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _told(_CONFIG, config_bytes),
            "layers": [_told(_LAYER, blobs[layer_digest])],
        }
    ).encode()
    blobs[digest(manifest)] = manifest
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(blobs))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    name = f"127.0.0.1:{server.server_port}/python@{digest(manifest)}"
    try:
        subprocess.run(["docker", "pull", "--quiet", name], check=True, capture_output=True)
    finally:
        server.shutdown()
        server.server_close()
        layer.unlink()
    return name


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _told(kind: str, data: bytes) -> dict[str, object]:
    return {"mediaType": kind, "size": len(data), "digest": digest(data)}


def _handler(blobs: dict[str, bytes]) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            data = b"{}" if self.path == "/v2/" else blobs.get(name)
            self.send_response(200 if data is not None else 404)
            self.send_header("Content-Length", str(len(data or b"")))
            kind = _MANIFEST if "/manifests/" in self.path else "application/octet-stream"
            self.send_header("Content-Type", kind)
            self.send_header("Docker-Content-Digest", name)
            self.end_headers()
            if self.command == "GET" and data:
                self.wfile.write(data)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *args: object) -> None:
            """Nobody reads it."""

    return Handler
