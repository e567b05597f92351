"""Units of this machine that hold on to artifacts of the store in their state folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldsnap.artifact.oci.layout import Store
    from coldsnap_runtime.context import Context

_SHOWN = 3


def let_go(store: Store) -> None:
    """Of images whose generations have ended; only root can, and others get told who holds."""
    from coldsnap_runtime.image_sweep import sweep_ended

    context = _context(store)
    if context is not None and os.geteuid() == 0:
        sweep_ended(context)


def held_by(store: Store, manifest: str) -> list[str]:
    """In words; a pin of a unit that is not known here by its name."""
    from coldsnap.artifact.oci.pins import pins
    from coldsnap_runtime.image_sweep import holders

    pinned = [pin.name for pin in pins(store) if pin.manifest == manifest]
    context = _context(store)
    known = holders(context, manifest) if pinned and context is not None else []
    return known or [f"pin {name}" for name in pinned]


def why_held(held: Sequence[str]) -> str:
    """Why a collection freed nothing of an artifact."""
    if not held:
        return ": other artifacts need the same bytes"
    more = f" and {len(held) - _SHOWN} more" if len(held) > _SHOWN else ""
    names = ", ".join(held[:_SHOWN]) + more
    verb = "hold" if len(held) > 1 else "holds"
    return f": {names} {verb} its bytes; stop it (plans/evict.yaml), then a collection frees them"


def _context(store: Store) -> Context | None:
    from coldsnap_runtime.context import Context

    state = store.root.absolute().parent
    if not (state / "units").is_dir() or not (state / "images").is_dir():
        return None
    return Context(os.fspath(state), "", _quiet)


def _quiet(event: dict[str, Any]) -> None:
    """What the runtime says on the way is not for this answer."""
