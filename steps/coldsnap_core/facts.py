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
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from pyinfra.api import FactBase

from coldsnap_core.bare_probe import probe_text

NOT_STAGED = {"event": "result", "ok": True, "result": {"staged": False}}
PROFILE_SECONDS = 600.0
"""How long an ability that was there is believed to be there still."""
ISOLATED = ("-I", "-S")
"""Options of the interpreter: without the host's own packages it starts in half the time."""
_NEXT = {"event": "next"}


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


def program(python: str) -> str:
    """Shell text of the interpreter as every command here starts it."""
    return shlex.join([python, *ISOLATED])


def verb_command(pack: str, python: str, state_dir: str, verb: str, request: Any) -> str:
    """Shell text that runs a verb with `request` on standard input; `pack` may be a variable."""
    body = json.dumps(request, sort_keys=True, separators=(",", ":"))
    return (
        f'printf %s {shlex.quote(body)} | {program(python)} "{pack}" {shlex.quote(verb)}'
        f" --state-dir {shlex.quote(state_dir)}"
    )


class OfTheRuntime(FactBase[dict[str, Any]]):
    """Facts that the runtime pack answers: several of one host share one start of its Python.

    The three ``together`` methods are what ColdSnap's fleet looks for; pyinfra itself asks each
    fact alone.
    """

    @classmethod
    def asks(cls, **args: Any) -> tuple[str, dict[str, Any]]:
        """Verb and request that answer the fact."""
        raise NotImplementedError

    @classmethod
    def alone(cls, **args: Any) -> str:
        """Shell text for a host where this pack is not staged; prints a result line."""
        raise NotImplementedError

    @classmethod
    def together_key(cls, **args: Any) -> str:
        """Facts with equal keys can be asked together."""
        place = _place(args)
        return f"coldsnap runtime {place['pack']} {place['python']} {place['state_dir']}"

    @classmethod
    def together(cls, asked: Sequence[tuple[type[OfTheRuntime], dict[str, Any]]]) -> str:
        """One command for all of `asked`: (fact, its arguments)."""
        place = _place(asked[0][1])
        verbs = [fact.asks(**args) for fact, args in asked]
        requests = [{"verb": verb, "request": request} for verb, request in verbs]
        batch = verb_command(**place, verb="batch", request={"requests": requests})
        separator = f"; echo {shlex.quote(json.dumps(_NEXT))}; "
        singly = separator.join(fact.alone(**args) for fact, args in asked)
        main = shlex.quote(f"{place['pack']}/__main__.py")
        return f"if [ -f {main} ]; then {batch} || true; else {singly}; fi"

    @classmethod
    def apart(cls, output: Sequence[str], count: int) -> list[list[str]]:
        """The output of `together`, one part for each of its facts."""
        answers = last_result(list(output)).get("answers")
        if isinstance(answers, list) and len(answers) == count:
            return [[json.dumps(answer)] for answer in answers]
        parts: list[list[str]] = [[]]
        for line in output:
            if _is_next(line):
                parts.append([])
            else:
                parts[-1].append(line)
        return parts if len(parts) == count else [list(output)] * count

    def process(self, output: list[str]) -> dict[str, Any]:
        return last_result(list(output))


def _place(args: Mapping[str, Any]) -> dict[str, str]:
    return {
        "pack": str(args["pack"]),
        "python": str(args.get("python") or "python3"),
        "state_dir": str(args.get("state_dir") or "/var/lib/coldsnap"),
    }


@cache
def _probe_argument() -> str:
    """The probe as one argument of ``python -c``."""
    packed = base64.b64encode(zlib.compress(probe_text().encode(), 9)).decode("ascii")
    return f"import base64,zlib;exec(zlib.decompress(base64.b64decode('{packed}')))"


def _where(place: Mapping[str, str]) -> dict[str, str]:
    """Request of the probe."""
    return {"state_dir": place["state_dir"], "criu": f"{place['pack']}/criu/criu"}


def _is_next(line: str) -> bool:
    return line.startswith('{"event": "next"')


class RuntimeVerb(OfTheRuntime):
    """The result of a reading verb of the runtime pack; ``{"staged": false}`` without a pack."""

    def command(
        self,
        verb: str,
        request: dict[str, Any],
        pack: str,
        python: str = "python3",
        state_dir: str = "/var/lib/coldsnap",
    ) -> str:
        return self.alone(verb=verb, request=request, pack=pack, python=python, state_dir=state_dir)

    @classmethod
    def asks(cls, **args: Any) -> tuple[str, dict[str, Any]]:
        return str(args["verb"]), dict(args["request"])

    @classmethod
    def alone(cls, **args: Any) -> str:
        place = _place(args)
        state_dir = place["state_dir"]
        run = verb_command("$p", place["python"], state_dir, args["verb"], args["request"])
        absent = shlex.quote(json.dumps(NOT_STAGED))
        others = shlex.quote(f"{state_dir}/runtime/sha256")
        # Before this version is staged another one may be there, and units that it started.
        find = (
            f"p={shlex.quote(place['pack'])}; "
            f'[ -f "$p/__main__.py" ] || p=$(ls -td {others}/*/ 2>/dev/null | head -n 1); '
        )
        # A verb that fails says so in its result line; its exit status must not hide that line.
        return f'{find}if [ -f "$p/__main__.py" ]; then {run} || true; else echo {absent}; fi'


class HostProfile(OfTheRuntime):
    """The host feature profile, by the probe of the runtime pack; works on a bare host too.

    What passed up to `max_age` seconds ago, on this boot and with this CRIU, is not tried again.
    """

    def command(
        self,
        pack: str,
        python: str = "python3",
        state_dir: str = "/var/lib/coldsnap",
        max_age: float = PROFILE_SECONDS,
    ) -> str:
        args = {"pack": pack, "python": python, "state_dir": state_dir, "max_age": max_age}
        return self.together([(type(self), args)])

    @classmethod
    def asks(cls, **args: Any) -> tuple[str, dict[str, Any]]:
        max_age = float(args.get("max_age", PROFILE_SECONDS))
        return "probe", {**_where(_place(args)), "max_age": max_age}

    @classmethod
    def alone(cls, **args: Any) -> str:
        place = _place(args)
        request = json.dumps(_where(place))
        probe = f"{program(place['python'])} -c {shlex.quote(_probe_argument())}"
        return f"printf %s {shlex.quote(request)} | {probe} || true"

    def process(self, output: list[str]) -> dict[str, Any]:
        found = last_result(list(output))
        answers = found.get("answers")
        return last_result([json.dumps(answers[0])]) if answers else found


class PackStaged(FactBase[dict[str, Any]]):
    """Whether a runtime pack is on the host and whole: {staged, valid, uid, writable}.

    Whole is what was hashed once and whose files have not changed since, by their stat.
    """

    def command(
        self,
        pack: str,
        python: str = "python3",
        state_dir: str = "/var/lib/coldsnap",
    ) -> str:
        request = {"expect": pack.rpartition("/")[2], "policy": "record"}
        verify = verb_command(pack, python, state_dir, "pack.verify", request)
        parent = shlex.quote(state_dir)
        main = shlex.quote(f"{pack}/__main__.py")
        code = "import sys; print('python', *sys.version_info[:2])"
        version = f"{program(python)} -c {shlex.quote(code)} 2>/dev/null || echo python none"
        return (
            f"echo uid $(id -u); d={parent}; "
            'while [ ! -e "$d" ]; do d=$(dirname "$d"); done; '
            '[ -w "$d" ] && echo writable yes || echo writable no; r=; '
            f"if [ -f {main} ]; then r=$({verify} 2>/dev/null || true); fi; "
            # The pack's answer tells the version too; without one it is asked alone.
            f"case $r in *'\"python\":'*) ;; *) {version};; esac; "
            f'if [ -f {main} ]; then printf "%s\\n" "$r"; fi'
        )

    def process(self, output: list[str]) -> dict[str, Any]:
        lines = list(output)
        words = {line.split()[0]: line.split()[1:] for line in lines if line.split()}
        checked = last_result(lines) if any('"event"' in line for line in lines) else None
        python = (checked or {}).get("python") or ".".join(words.get("python", ["none"]))
        return {
            "uid": int(words.get("uid", ["-1"])[0]),
            "writable": words.get("writable") == ["yes"],
            "python": str(python),
            "staged": checked is not None,
            "valid": checked is not None and "error" not in checked,
        }
