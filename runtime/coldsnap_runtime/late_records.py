"""Dataclasses whose methods are made when the first instance is.

A verb imports some ninety of them and makes a dozen; making the methods of the others is half of
its start. `install`, called before anything else is imported, lets ``@dataclass`` of our own
modules wait for the first instance, or for whoever asks for the fields. Nothing else differs.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable
from typing import Any

_OURS = "coldsnap"
_AT_ONCE = frozenset({"slots", "weakref_slot", "init"})
"""Options that make another class, or no ``__init__``."""

_make_dataclass = dataclasses.dataclass
# Making one may make its bases; two threads may want one at once.
_lock = threading.RLock()


def _renew_lock() -> None:
    global _lock  # noqa: PLW0603 - a fork copies it as it is, and not the thread that holds it
    _lock = threading.RLock()


def install() -> None:
    """From now on, in this process."""
    os.register_at_fork(after_in_child=_renew_lock)
    dataclasses.dataclass = late_dataclass


def late_dataclass(cls: type | None = None, /, **options: Any) -> Any:
    """As `dataclasses.dataclass`."""
    if cls is None:
        return lambda decorated: late_dataclass(decorated, **options)
    if not _can_wait(cls, options):
        return _make_dataclass(**options)(cls)
    _Late(cls, _make_dataclass(**options))
    return cls


def _can_wait(cls: type, options: dict[str, Any]) -> bool:
    is_ours = cls.__module__.partition(".")[0].startswith(_OURS)
    is_plain = not any(name in cls.__dict__ for name in ("__init__", "__new__", "__slots__"))
    makes_objects = all("__new__" not in vars(base) or _waits(base) for base in cls.__mro__[1:-1])
    return is_ours and is_plain and makes_objects and not _AT_ONCE & options.keys()


def _waits(cls: type) -> bool:
    """Whether its ``__new__`` is ours."""
    return isinstance(getattr(cls.__dict__["__new__"], "__func__", None), _New)


class _Late:
    """Stands for ``__dataclass_fields__`` of a class until it is made."""

    def __init__(self, cls: type, make: Callable[[type], type]) -> None:
        self._cls, self._make = cls, make
        self._is_made = False
        # Not __init__: that is missing for a moment while it is made, and a second thread falls in.
        type.__setattr__(cls, "__new__", staticmethod(_New(self.complete)))
        type.__setattr__(cls, "__dataclass_fields__", self)

    def __get__(self, instance: object, owner: type) -> Any:
        self.complete()
        return getattr(owner, "__dataclass_fields__")  # noqa: B009 - mypy knows no such field

    def complete(self) -> None:
        """Make the methods, once."""
        with _lock:
            if self._is_made:
                return
            has_doc = bool(self._cls.__doc__)
            if not has_doc:  # else it is made up of the signature, which nobody reads here
                self._cls.__doc__ = self._cls.__name__
            self._make(self._cls)
            self._is_made = True


class _New:
    """``__new__`` of a class that waits, and later."""

    def __init__(self, complete: Callable[[], None]) -> None:
        self._complete: Callable[[], None] | None = complete

    def __call__(self, cls: type, /, *arguments: object, **named: object) -> object:
        del arguments, named
        if self._complete is not None:
            self._complete()
            self._complete = None
        return object.__new__(cls)
