"""pyinfra facts of the core pack: they read a target, cheaply, and change nothing.

They are ordinary pyinfra facts; outside ColdSnap use them as such::

    from coldsnap_core.facts import RuntimeVerb
    units = host.get_fact(RuntimeVerb, verb="unit.status", request={}, pack=PACK)
"""

from __future__ import annotations

import base64
import json
import shlex
import zlib
from importlib.resources import files
from typing import Any

from pyinfra.api import FactBase

NOT_STAGED = {"event": "result", "ok": True, "result": {"staged": False}}


def last_result(output: list[str]) -> dict[str, Any]:
    """The result object of a runtime verb's JSON lines; ``{"error": {...}}`` if it failed."""
    for line in reversed(output):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict) and value.get("event") == "result":
            if value.get("ok"):
                result = value.get("result")
                return result if isinstance(result, dict) else {"value": result}
            return {"error": value.get("error") or {}}
    return {
        "error": {
            "code": "runtime.no-answer",
            "message": "the runtime pack gave no answer",
            "details": output[-3:],
        }
    }


def verb_command(pack: str, python: str, state_dir: str, verb: str, request: Any) -> str:
    """Shell text that runs a verb with `request` on standard input; `pack` may be a variable."""
    body = json.dumps(request, sort_keys=True, separators=(",", ":"))
    return (
        f'printf %s {shlex.quote(body)} | {shlex.quote(python)} "{pack}" {shlex.quote(verb)}'
        f" --state-dir {shlex.quote(state_dir)}"
    )


class RuntimeVerb(FactBase[dict[str, Any]]):
    """The result of a reading verb of the runtime pack; ``{"staged": false}`` without a pack."""

    def command(
        self,
        verb: str,
        request: dict[str, Any],
        pack: str,
        python: str = "python3",
        state_dir: str = "/var/lib/coldsnap",
    ) -> str:
        run = verb_command("$p", python, state_dir, verb, request)
        absent = shlex.quote(json.dumps(NOT_STAGED))
        others = shlex.quote(f"{state_dir}/runtime/sha256")
        # Before this version is staged another one may be there, and units that it started.
        find = (
            f"p={shlex.quote(pack)}; "
            f'[ -f "$p/__main__.py" ] || p=$(ls -td {others}/*/ 2>/dev/null | head -n 1); '
        )
        # A verb that fails says so in its result line; its exit status must not hide that line.
        return f'{find}if [ -f "$p/__main__.py" ]; then {run} || true; else echo {absent}; fi'

    def process(self, output: list[str]) -> dict[str, Any]:
        return last_result(list(output))


class HostProfile(FactBase[dict[str, Any]]):
    """The host feature profile, by the probe of the runtime pack; works on a bare host too."""

    def command(
        self,
        pack: str,
        python: str = "python3",
        state_dir: str = "/var/lib/coldsnap",
    ) -> str:
        source = files("coldsnap_runtime").joinpath("probe.py").read_bytes()
        packed = base64.b64encode(zlib.compress(source, 9)).decode("ascii")
        program = f"import base64,zlib;exec(zlib.decompress(base64.b64decode('{packed}')))"
        request = json.dumps({"state_dir": state_dir, "criu": f"{pack}/criu/criu"})
        return f"printf %s {shlex.quote(request)} | {python} -c {shlex.quote(program)} || true"

    def process(self, output: list[str]) -> dict[str, Any]:
        return last_result(list(output))


class PackStaged(FactBase[dict[str, Any]]):
    """Whether a runtime pack is on the host and whole: {staged, valid, uid, writable}."""

    def command(
        self,
        pack: str,
        python: str = "python3",
        state_dir: str = "/var/lib/coldsnap",
    ) -> str:
        verify = shlex.join([python, pack, "pack.verify", "--state-dir", state_dir])
        parent = shlex.quote(state_dir)
        main = shlex.quote(f"{pack}/__main__.py")
        return (
            f"echo uid $(id -u); d={parent}; "
            'while [ ! -e "$d" ]; do d=$(dirname "$d"); done; '
            '[ -w "$d" ] && echo writable yes || echo writable no; '
            f"{shlex.quote(python)} -c 'import sys; print(\"python\", *sys.version_info[:2])'"
            " 2>/dev/null || echo python none; "
            f"if [ -f {main} ]; then echo '{{}}' | {verify} || true; fi"
        )

    def process(self, output: list[str]) -> dict[str, Any]:
        lines = list(output)
        words = {line.split()[0]: line.split()[1:] for line in lines if line.split()}
        checked = last_result(lines) if any('"event"' in line for line in lines) else None
        return {
            "uid": int(words.get("uid", ["-1"])[0]),
            "writable": words.get("writable") == ["yes"],
            "python": ".".join(words.get("python", ["none"])),
            "staged": checked is not None,
            "valid": checked is not None and "error" not in checked,
        }
