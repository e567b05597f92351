"""Stand-ins for the fleet's child, each dying in its own way: ``dying_child.py MANNER``."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def say(**message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


manner, *rest = sys.argv[1:]
if manner == "at-start":
    sys.stderr.write("ImportError: no module named pyinfra\n")
    sys.exit(3)
say(ready=os.getpid())
for line in sys.stdin:
    request = json.loads(line)
    if request["do"] == "hosts":
        say(id=request["id"], ok=True, value=None)
    elif manner == "once" and not Path(rest[0]).exists():
        Path(rest[0]).touch()
        os._exit(9)
    elif manner == "always":
        sys.stderr.write("killed by a test\n")
        sys.stderr.flush()
        os._exit(9)
    elif manner == "garbage":
        sys.stdout.write("not JSON\n" + json.dumps({"id": 10**9, "ok": True}) + "\n")
        say(id=request["id"], ok=True, value=[{"value": 1}])
    elif manner == "silent":
        time.sleep(600)
    elif request["do"] == "job-wait":
        result = {"event": "result", "ok": True, "result": {"rejoined": request["job"]}}
        value = {"changed": True, "result": result, "stdout": "", "stderr": ""}
        say(id=request["id"], ok=True, value=value)
    else:
        say(id=request["id"], ok=True, value=[{"value": 1} for _ in request.get("facts", ())])
