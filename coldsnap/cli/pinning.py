"""What of a plan can be pinned: names that may come to mean something else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from coldsnap.artifact.errors import ColdSnapError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coldsnap.plan.document import Document

Place: TypeAlias = tuple[str | int, ...]
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Pin:
    """One value to write; `old` is empty where the field is not there yet."""

    place: Place
    old: str
    new: str

    @property
    def label(self) -> str:
        return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in self.place).lstrip(".")


def pins(document: Document, artifact: Callable[[str], str]) -> list[Pin]:
    """Artifacts by name and Hub revisions that are no commit; expressions are left alone.

    Args:
        document: the plan.
        artifact: gives the digest of a name in the store.

    Raises:
        ColdSnapError: ``store.*``, ``hub.*``
    """
    found = [Pin(place, name, artifact(name)) for place, name in _artifacts(document)]
    model = document.data.get("model") if isinstance(document.data, dict) else None
    if isinstance(model, dict) and model.get("source") == "hf":
        revision = str(model.get("revision") or "")
        name = str(model.get("id", ""))
        if not _COMMIT.fullmatch(revision) and "{{" not in revision + name:
            found.append(Pin(("model", "revision"), revision, _commit(name, revision)))
    return found


def _artifacts(document: Document) -> Iterator[tuple[Place, str]]:
    data = document.data if isinstance(document.data, dict) else {}
    steps = data.get("steps")
    for number, step in enumerate(steps if isinstance(steps, list) else ()):
        given = step.get("with") if isinstance(step, dict) else None
        name = given.get("artifact") if isinstance(given, dict) else None
        if isinstance(name, str) and name and "{{" not in name and not name.startswith("sha256:"):
            yield ("steps", number, "with", "artifact"), name


def _commit(model: str, revision: str) -> str:
    """The commit that a revision of a model on the Hub means now."""
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise ColdSnapError(
            "hub.not-installed",
            f"the revision of {model} cannot be looked up without huggingface_hub",
            remedy="pip install 'coldsnap[hub]', or write the commit into model.revision",
        ) from error
    try:
        info = HfApi().model_info(model, revision=revision or None, timeout=30)
    except Exception as error:
        raise ColdSnapError(
            "hub.failed",
            f"the Hub did not tell the revision {revision or 'main'} of {model}",
            cause=f"{type(error).__name__}: {str(error).splitlines()[0]}",
            remedy="check the name, the network and HF_TOKEN, or write the commit by hand",
        ) from error
    return str(info.sha)
