"""pycriu's message classes, loaded when they are needed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from coldsnap.artifact.errors import ColdSnapError


@dataclass(frozen=True)
class ImageMessages:
    """Classes of the messages that we read, and the magic word of each kind of file."""

    inventory: Any
    pstree: Any
    core: Any
    mm: Any
    vma: Any
    pagemap_head: Any
    pagemap_entry: Any
    file: Any
    decode_error: type[Exception]
    magic: Mapping[str, int]


@lru_cache(maxsize=1)
def image_messages() -> ImageMessages:
    """The classes.

    Raises:
        ColdSnapError: ``image.unsupported`` where this runtime has no pycriu.
    """
    try:
        modules = {
            name: importlib.import_module(f"pycriu.images.{name}_pb2")
            for name in ("inventory", "pstree", "core", "mm", "vma", "pagemap", "fdinfo")
        }
        magic = importlib.import_module("pycriu.images.magic").by_name
        decode_error = importlib.import_module("google.protobuf.message").DecodeError
    except (ImportError, TypeError, AttributeError) as error:
        raise ColdSnapError(
            "image.unsupported",
            f"this runtime cannot read process images: {error}",
            cause="the CRIU that it was built with came without its Python package (pycriu)",
            remedy="build the runtime pack with a CRIU bundle: coldsnap runtime build",
        ) from None
    return ImageMessages(
        inventory=modules["inventory"].inventory_entry,
        pstree=modules["pstree"].pstree_entry,
        core=modules["core"].core_entry,
        mm=modules["mm"].mm_entry,
        vma=modules["vma"].vma_entry,
        pagemap_head=modules["pagemap"].pagemap_head,
        pagemap_entry=modules["pagemap"].pagemap_entry,
        file=modules["fdinfo"].file_entry,
        decode_error=decode_error,
        magic=magic,
    )
