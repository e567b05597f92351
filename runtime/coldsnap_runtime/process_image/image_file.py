"""Files of protobuf messages: magic words, then for each message its length and its bytes.

What is read is checked: the magic of the kind, lengths, required fields, and that no message has
a field that our classes do not know (a newer CRIU's, which could mean anything).
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import read_regular
from coldsnap_runtime.process_image.image_errors import damaged, unsupported
from coldsnap_runtime.process_image.image_messages import image_messages

MOST_BYTES = 64 << 20
"""Of one file of messages."""
_MOST_MESSAGES = 1 << 20
_COMMON = "IMG_COMMON"
_WORD = struct.Struct("<I")


def read_messages(folder: Path, name: str, kind: str, *types: Any) -> list[Any]:
    """All messages of a file.

    Args:
        folder: of the images.
        name: of the file.
        kind: pycriu's name of its magic word: ``MM``, ``PAGEMAP``, ...
        types: classes of the messages in order; the last one repeats.

    Raises:
        ColdSnapError: ``image.damaged``, ``image.unsupported``.
    """
    data = _read(folder, name)
    at = _after_magic(name, kind, data)
    found: list[Any] = []
    while at < len(data):
        if len(found) == _MOST_MESSAGES:
            raise damaged(name, f"more than {_MOST_MESSAGES} messages")
        message = types[min(len(found), len(types) - 1)]()
        at = _read_one(name, data, at, message)
        found.append(message)
    if len(found) < len(types) - 1 or not found:
        raise damaged(name, "messages are missing")
    return found


def read_one_message(folder: Path, name: str, kind: str, message_type: Any) -> Any:
    """The message of a file that has exactly one."""
    found = read_messages(folder, name, kind, message_type)
    if len(found) != 1:
        raise damaged(name, f"{len(found)} messages where one belongs")
    return found[0]


def encode_messages(kind: str, messages: list[Any]) -> bytes:
    """The bytes of a file; the same for equal messages."""
    magic = image_messages().magic
    parts = [_WORD.pack(magic[_COMMON]), _WORD.pack(magic[kind])]
    for message in messages:
        body = message.SerializeToString(deterministic=True)
        parts += [_WORD.pack(len(body)), body]
    return b"".join(parts)


def _read(folder: Path, name: str) -> bytes:
    path = folder / name
    try:
        return read_regular(path, MOST_BYTES)
    except ColdSnapError as error:
        raise damaged(name, error.message) from None
    except FileNotFoundError:
        raise damaged(name, "it is missing") from None
    except OSError as error:
        raise damaged(name, os.strerror(error.errno or 0)) from None


def _after_magic(name: str, kind: str, data: bytes) -> int:
    """Where the messages begin. The inventory has no word before its own, in any version."""
    magic = image_messages().magic
    words = [magic[kind]] if kind == "INVENTORY" else [magic[_COMMON], magic[kind]]
    head = b"".join(map(_WORD.pack, words))
    if not data.startswith(head):
        raise damaged(name, "its magic words are others")
    return len(head)


def _read_one(name: str, data: bytes, at: int, message: Any) -> int:
    if at + _WORD.size > len(data):
        raise damaged(name, "it ends within a length")
    (size,) = _WORD.unpack_from(data, at)
    start = at + _WORD.size
    if start + size > len(data):
        raise damaged(name, "it ends within a message")
    _parse(name, data[start : start + size], message)
    if _has_unknown_fields(message):
        raise unsupported(f"{name} has fields that this version does not know")
    return int(start + size)


def _has_unknown_fields(message: Any) -> bool:
    if len(image_messages().unknown_fields(message)):
        return True
    for row, value in message.ListFields():
        if row.message_type is not None:
            parts = (value,) if hasattr(value, "DESCRIPTOR") else value
            if any(map(_has_unknown_fields, parts)):
                return True
    return False


def _parse(name: str, body: bytes, message: Any) -> None:
    try:
        message.ParseFromString(body)
        if message.IsInitialized():
            return
        why = "a required field is missing"
    # The pure-Python protobuf raises what its parsing meets, not only its own error.
    except (image_messages().decode_error, ValueError, LookupError, struct.error) as error:
        why = str(error) or type(error).__name__
    except (TypeError, RecursionError, OverflowError) as error:
        why = type(error).__name__
    raise damaged(name, why)
