"""The two ways in which an image is refused."""

from __future__ import annotations

from coldsnap.artifact.errors import ColdSnapError


def unsupported(what: str) -> ColdSnapError:
    """The image is whole, but holds something that a rewrite does not know to be safe."""
    return ColdSnapError(
        "image.unsupported",
        f"the process image cannot be rewritten: {what}",
        remedy="nothing to do: it is restored as CRIU wrote it (image_mode plain)",
    )


def damaged(name: str, why: str) -> ColdSnapError:
    """A file of the image is not what CRIU writes."""
    return ColdSnapError(
        "image.damaged",
        f"{name} of the process image is not one of CRIU's: {why}",
        remedy="capture again, and check the disk of the state folder",
    )
