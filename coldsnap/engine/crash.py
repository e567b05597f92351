"""A step that raises what it must not: one clear line for the user, the traceback in a file."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.instances import Instance
from coldsnap.engine.rendering import UnknownOutput


@dataclass(frozen=True)
class Crashes:
    """`folder` takes ``crashes.log``; None (a preview) keeps no traceback."""

    folder: Path | None = None

    @contextmanager
    def told(self, instance: Instance) -> Iterator[None]:
        """Turn any other exception into a `ColdSnapError`.

        Raises:
            ColdSnapError: ``internal.step-crashed``.
        """
        try:
            yield
        except (ColdSnapError, UnknownOutput):
            raise
        except Exception as error:
            raise self._told(instance, error) from error

    def _told(self, instance: Instance, error: Exception) -> ColdSnapError:
        first = (str(error).strip().splitlines() or [""])[0]
        details = [f"{type(error).__name__}: {first}" if first else type(error).__name__]
        if self.folder is not None:
            log = self.folder / "crashes.log"
            with suppress(OSError), log.open("a", encoding="utf-8") as file:
                file.write(f"--- {instance.key}\n{''.join(traceback.format_exception(error))}")
                details.append(f"traceback: {log}")
        return ColdSnapError(
            "internal.step-crashed",
            f"step type {instance.step.type} has a fault",
            instance.label,
            details=tuple(details),
            remedy="report it to the author of the step type",
        )
