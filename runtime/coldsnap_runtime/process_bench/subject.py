"""What is restored again and again: a synthetic tree that is made here, or a given artifact."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime import image_folders
from coldsnap_runtime.namespaces import dial
from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_capture import Capture
from coldsnap_runtime.unit_checkpoint import checkpoint
from coldsnap_runtime.unit_launch import launch
from coldsnap_runtime.unit_record import UnitStore
from coldsnap_runtime.unit_requests import CheckpointRequest, LaunchRequest
from coldsnap_runtime.unit_stop import stop

if TYPE_CHECKING:
    from coldsnap_runtime.context import Context
    from coldsnap_runtime.installation import Installation
    from coldsnap_runtime.unit_record import UnitRecord

UNIT = "bench"
PORT = 8000
CHILD_SHARE = 0.2
_READY_SECONDS = 600.0
_ANSWER_SECONDS = 600.0
_HIDDEN = ("/tmp/", "/run/coldsnap/", "/dev/shm/")  # noqa: S108  (a unit has its own)
_DIGEST = "sha256:" + "0" * 64


@dataclass(frozen=True)
class Subject:
    image: Path
    artifact: str
    bytes: int
    """Of the page files."""
    path: str
    """Whose answer counts as the first one."""
    port: int
    expected: Any
    """What the synthetic tree answers; None for an artifact: whatever it says."""
    digest: Any
    verdicts: dict[str, Any]
    capture_spans: list[dict[str, Any]]


def synthetic(
    context: Context,
    installation: Installation,
    size: int,
    script: Path,
    child_share: float = CHILD_SHARE,
) -> Subject:
    """Start the tree below the product's supervisor, capture it, end it.

    `child_share` of its memory is in a second process; 0: there is none.
    """
    guarded = installation.guard.is_file()
    value = {
        "unit": UNIT,
        "run": "bench",
        "engine": "bench",
        "launch_sha256": _DIGEST,
        "launch": {
            "argv": [_python(), "-S", os.fspath(script), str(PORT), str(size), str(child_share)],
            "env": {"MALLOC_ARENA_MAX": "16"},
            "ports": [{"name": "http", "inner": PORT, "port": PORT}],
            "memory_guard": guarded,
        },
    }
    record = launch(LaunchRequest.from_json(value), context, installation, Timing())
    try:
        wait_for(record, "/health", PORT, _READY_SECONDS)
        expected, digest = ask(record, "/ping", PORT), ask(record, "/sum", PORT)
        store = UnitStore(context.state_dir)
        record = store.update(record, state="quiesced")
        request = CheckpointRequest(UNIT, "bench", "c1", generation=record.generation)
        timing = Timing()
        done = checkpoint(request, context, installation, timing, lambda: None)
    finally:
        stop_now(record, context)
    image = Path(done["capture_dir"])
    capture = Capture.read(image)
    return Subject(
        image=image,
        artifact=_DIGEST,
        bytes=page_bytes(image),
        path="/ping",
        port=PORT,
        expected=expected,
        digest=digest,
        verdicts=(capture.process_image or {}).get("rungs") or {},
        capture_spans=timing.to_json()["spans"],
    )


def _python() -> str:
    """An interpreter that a unit can see: ours, else the one that ours was made from.

    Raises:
        ColdSnapError: ``bench.python-hidden``.
    """
    for path in (sys.executable, os.path.realpath(sys.executable)):
        if not path.startswith(_HIDDEN):
            return path
    raise ColdSnapError(
        "bench.python-hidden",
        f"{sys.executable} lies in a folder that a unit has of its own",
        remedy="install coldsnap elsewhere than below /tmp, or measure an artifact: --artifact REF",
    )


def of_artifact(context: Context, store: Path, manifest: str, path: str) -> tuple[Subject, str]:
    """An artifact of a store, laid out once; the token of its folder."""
    image = image_folders.lay_out(context, UNIT, store, manifest, "record")
    capture = Capture.read(image.folder)
    ports = capture.launch.get("ports") or [{"inner": PORT}]
    subject = Subject(
        image=image.folder,
        artifact=manifest,
        bytes=page_bytes(image.folder),
        path=path,
        port=int(ports[0]["inner"]),
        expected=None,
        digest=None,
        verdicts=(capture.process_image or {}).get("rungs") or {},
        capture_spans=[],
    )
    return subject, image.token


def page_bytes(image: Path) -> int:
    return sum(path.stat().st_size for path in (image / "images").glob("pages-*.img"))


def ask(record: UnitRecord, path: str, port: int) -> Any:
    """The answer to a GET inside the unit, as JSON where it is that."""
    assert record.init is not None  # noqa: S101
    client = http.client.HTTPConnection("127.0.0.1", timeout=_ANSWER_SECONDS)
    client.sock = dial(record.init.pid, port, 5.0)
    client.sock.settimeout(_ANSWER_SECONDS)
    try:
        client.request("GET", path, headers={"Connection": "close"})
        body = client.getresponse().read()
    except TimeoutError:
        raise ColdSnapError(
            "engine.not-ready", f"no answer to {path} within {_ANSWER_SECONDS:.0f} s"
        ) from None
    finally:
        client.close()
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")[:200]


def wait_for(record: UnitRecord, path: str, port: int, seconds: float) -> Any:
    """The first answer within `seconds`.

    Raises:
        ColdSnapError: ``engine.not-ready``.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            return ask(record, path, port)
        except (OSError, http.client.HTTPException) as error:
            is_alive = record.init is not None and record.init.is_alive
            if time.monotonic() > end or not is_alive:
                raise ColdSnapError(
                    "engine.not-ready", f"no answer to {path} within {seconds:.0f} s: {error}"
                ) from None
            time.sleep(0.002)


def stop_now(record: UnitRecord, context: Context) -> None:
    from coldsnap_runtime.unit_requests import GenerationRequest  # noqa: PLC0415

    stop(GenerationRequest(record.unit, record.run, record.generation, 0.0), context, Timing())
    folder = UnitStore(context.state_dir).paths(record.unit, record.generation).folder
    shutil.rmtree(folder, ignore_errors=True)
