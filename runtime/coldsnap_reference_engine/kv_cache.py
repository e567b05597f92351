"""Keys and values of the sequences in progress, in one region of its own."""

from __future__ import annotations

import numpy as np

from coldsnap_reference_engine.kernels import Floats
from coldsnap_reference_engine.regions import KV_ADDRESS, Region


class KvCache:
    """`slots` sequences of up to `length` tokens.

    `keys` and `values` are [slot, layer, kv head, token, head_dim].
    """

    def __init__(
        self,
        slots: int,
        layers: int,
        heads: int,
        length: int,
        head_dim: int,
        *,
        address: int = KV_ADDRESS,
    ) -> None:
        shape = (slots, layers, heads, length, head_dim)
        half = 4 * int(np.prod(shape, dtype=np.int64))
        self.slots = slots
        self.length = length
        self.region = Region("keys and values", address, 2 * half, huge=False)
        self.keys: Floats = self.region.array(0, shape, np.float32)
        self.values: Floats = self.region.array(half, shape, np.float32)

    @property
    def reserved_bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes
