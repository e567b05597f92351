"""The probe alone on a host, without a runtime pack."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from coldsnap_runtime.probe.feature import Options
from coldsnap_runtime.probe.profile import profile

if TYPE_CHECKING:
    from typing import TextIO


def main(argv: list[str], stdin: TextIO) -> int:
    """Alone on a host: options by ``--state-dir``, ``--criu`` or as JSON on stdin."""
    values: dict[str, str] = {}
    text = "" if stdin.isatty() else stdin.read(1 << 16)
    with contextlib.suppress(ValueError):
        values = json.loads(text) if text.strip() else {}
    for name, value in zip(argv[::2], argv[1::2]):  # noqa: B905  (Python 3.8 has no strict)
        values[name.lstrip("-").replace("-", "_")] = value
    options = Options(values.get("state_dir") or "/var/lib/coldsnap", values.get("criu") or "")
    print(json.dumps({"event": "result", "ok": True, "result": profile(options)}))
    return 0
