"""pyinfra operations of the core pack: the only code that changes a target.

They are ordinary pyinfra operations; outside ColdSnap use them as such::

    from coldsnap_core.operations import runtime_verb
    runtime_verb(verb="unit.stop", request={"unit": "u0"}, pack=PACK, job="stop-u0")
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Generator
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand, operation

from coldsnap_core.facts import ISOLATED, PackStaged

# Two runs may stage one pack at once: each unpacks on its own, and what is whole already stays.
_UNPACK = """set -e
verify() { echo "$expected" | "$python" -I -S "$1" pack.verify --state-dir "$state"; }
mkdir -p "$state/runtime/incoming" "${pack%/*}"
new=$(mktemp -d "$state/runtime/incoming/unpack.XXXXXX")
trap 'rm -rf "$new"' EXIT
tar -xf "$tar" -C "$new"
chmod 755 "$new"
verify "$new"
if ! mv -T "$new" "$pack" 2>/dev/null && ! verify "$pack"; then
  rm -rf "$pack"
  mv -T "$new" "$pack"
fi
rm -f "$tar"
sync -f "$pack"
"""


@operation(is_idempotent=False)
def runtime_verb(
    verb: str,
    request: dict[str, Any],
    pack: str,
    python: str = "python3",
    state_dir: str = "/var/lib/coldsnap",
    job: str | None = None,
) -> Generator[StringCommand, None, None]:
    """Run a verb of the staged runtime pack, with `job` as a job that outlives its caller.

    + verb: ``unit.launch``, ``unit.checkpoint`` ...; the pack lists them: ``PACK verbs``
    + request: JSON object, given on standard input
    + pack: folder of the runtime pack on the host
    + job: the same id and request again attach to the job or return its stored result
    """
    argv = [python, *ISOLATED, pack, verb, "--state-dir", state_dir]
    if job:
        argv += ["--job", job]
    body = json.dumps(request, sort_keys=True, separators=(",", ":"))
    yield StringCommand(shlex.join(argv), _stdin=body)


@operation()
def runtime_staged(
    pack: str,
    archive: str,
    python: str = "python3",
    state_dir: str = "/var/lib/coldsnap",
) -> Generator[StringCommand, None, None]:
    """Unpack an uploaded runtime pack, verify it, and move it to its content address.

    + pack: ``{state_dir}/runtime/sha256/<hex>``
    + archive: the uploaded tar on the host; removed afterwards
    """
    seen = host.get_fact(PackStaged, pack=pack, python=python, state_dir=state_dir)
    if seen["staged"] and seen["valid"]:
        host.noop(f"runtime pack {pack} is staged and whole")
        return
    expected = shlex.quote(json.dumps({"expect": pack.rpartition("/")[2]}))
    variables = f"pack={shlex.quote(pack)} tar={shlex.quote(archive)} python={shlex.quote(python)}"
    state = f"state={shlex.quote(state_dir)}"
    yield StringCommand(f"{variables} {state} expected={expected}; {_UNPACK}")


@operation(is_idempotent=False)
def lease(
    verb: str,
    request: dict[str, Any],
    pack: str,
    python: str = "python3",
    state_dir: str = "/var/lib/coldsnap",
) -> Generator[StringCommand, None, None]:
    """Acquire, renew or release the lease of a unit: verb ``acquire``, ``renew``, ``release``."""
    argv = [python, *ISOLATED, pack, f"lease.{verb}", "--state-dir", state_dir]
    body = json.dumps(request, sort_keys=True, separators=(",", ":"))
    yield StringCommand(shlex.join(argv), _stdin=body)


@operation(is_idempotent=False)
def jobs_ended(
    job: str,
    pack: str,
    python: str = "python3",
    state_dir: str = "/var/lib/coldsnap",
) -> Generator[StringCommand, None, None]:
    """End the running jobs ``job`` and ``job.*`` of the runtime; they undo what they began.

    + job: id of the job; one that does not run, or never did, is left as it is
    """
    cancel = shlex.join([python, *ISOLATED, pack, "job", "cancel"])
    folders = f"{shlex.quote(f'{state_dir}/jobs/{job}')} {shlex.quote(f'{state_dir}/jobs/{job}.')}*"
    yield StringCommand(
        f"[ -f {shlex.quote(f'{pack}/__main__.py')} ] || exit 0; "
        f'for folder in {folders}; do [ -d "$folder" ] || continue; '
        f'{cancel} "${{folder##*/}}" --state-dir {shlex.quote(state_dir)} || exit; done'
    )
