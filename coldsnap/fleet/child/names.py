"""Facts and operations by name: ``package.module:Name``."""

from __future__ import annotations

import importlib
from typing import Any

from pyinfra.api import FactBase
from pyinfra.api.facts import ShortFactBase

from coldsnap.artifact.errors import ColdSnapError


def load(name: str) -> Any:
    """The object that `name` means.

    Raises:
        ColdSnapError: ``host.unknown-name``: not importable, or there is no such thing in it.
    """
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise ColdSnapError(
            "host.unknown-name",
            f"{name!r} is not of the form package.module:Name",
        )
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ColdSnapError(
            "host.unknown-name",
            f"{name} cannot be loaded",
            cause=str(error),
            remedy="install the package that brings it beside coldsnap",
        ) from error
    except Exception as error:
        raise ColdSnapError(
            "host.unknown-name",
            f"{name} cannot be loaded: its module fails",
            cause=f"{type(error).__name__}: {error}"[:500],
        ) from error


def load_fact(name: str) -> type[Any]:
    """Raises: ColdSnapError ``host.unknown-name`` also when it is no pyinfra fact."""
    found = load(name)
    if isinstance(found, type) and issubclass(found, (FactBase, ShortFactBase)):
        return found
    raise ColdSnapError("host.unknown-name", f"{name} is not a pyinfra fact")


def load_operation(name: str) -> Any:
    """Raises: ColdSnapError ``host.unknown-name`` also when it is no pyinfra operation."""
    found = load(name)
    if callable(found) and hasattr(found, "_inner"):
        return found
    raise ColdSnapError("host.unknown-name", f"{name} is not a pyinfra operation")
