"""pycriu's message classes, loaded when they are needed."""

from __future__ import annotations

import importlib
import os
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
    unknown_fields: Any
    """Of a message: a sized set of the fields that its class does not know."""
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
        unknown_fields = importlib.import_module("google.protobuf.unknown_fields").UnknownFieldSet
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
        unknown_fields=unknown_fields,
        magic=magic,
    )


def text_of(value: str | bytes) -> str:
    """A string of a message. Names of files need not be UTF-8; protobuf gives bytes then."""
    return os.fsdecode(value)
