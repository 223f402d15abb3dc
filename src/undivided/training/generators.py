"""Random numbers that come out the same on every machine.

Initial parameters and the order of the samples are drawn from one generator. `XorShift64` is
that of the reference programs, number for number. `Philox` counts: its n-th draw can be made
without the ones before it.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any, Protocol

import numpy as np

from undivided.errors import ArgumentError

__all__ = ["GENERATORS", "Generator", "Philox", "XorShift64"]

_native: Any = None  # it makes long draws faster; the definitions below are enough
with contextlib.suppress(ImportError):
    _native = importlib.import_module("undivided._native")


class Generator(Protocol):
    """What initial values and training draw from."""

    state: tuple[int, ...]
    """All that the next draws depend on; a generator given the state of another continues it."""

    def uniform(self, count: int, low: float, high: float) -> np.ndarray:
        """[count] float32 between low and high."""
        ...

    def shuffle(self, order: np.ndarray) -> None:
        """Bring the numbers of a uint32 array into another order, in place."""
        ...


class XorShift64:
    """x ^= x << 13, x ^= x >> 7, x ^= x << 17 on 64 bits; a draw is the high 32 of them."""

    def __init__(self, seed: int) -> None:
        self._x = _checked(seed) or 0x9E3779B97F4A7C15  # from 0 it would never leave 0

    @property
    def state(self) -> tuple[int, ...]:
        return (self._x,)

    @state.setter
    def state(self, state: tuple[int, ...]) -> None:
        (self._x,) = state

    def next_u32(self) -> int:
        x = self._x
        x ^= (x << 13) & _ALL_64
        x ^= x >> 7
        x ^= (x << 17) & _ALL_64
        self._x = x
        return x >> 32

    def uniform(self, count: int, low: float, high: float) -> np.ndarray:
        return _between(self._fill(count), low, high)

    def shuffle(self, order: np.ndarray) -> None:
        """Fisher–Yates from the end. What comes out depends on the order that goes in."""
        if hasattr(_native, "xorshift64_shuffle"):
            self._x = _native.xorshift64_shuffle(self._x, order)
            return
        numbers = order.tolist()
        for i in range(len(numbers) - 1, 0, -1):
            j = self.next_u32() % (i + 1)
            numbers[i], numbers[j] = numbers[j], numbers[i]
        order[:] = numbers

    def _fill(self, count: int) -> np.ndarray:
        """The next `count` draws, uint32."""
        if hasattr(_native, "xorshift64_fill"):
            draws = np.empty(count, np.uint32)
            self._x = _native.xorshift64_fill(self._x, draws)
            return draws
        return np.fromiter((self.next_u32() for _ in range(count)), np.uint32, count)


class Philox:
    """Philox4x32-10 (Salmon, Moraes, Dror and Shaw, 2011): random words are a cipher of a count.

    The key is the seed. The four words of the counter are: the number of the block within one
    call (two words), the number of the call among those of its purpose, and the purpose. So the
    n-th parameter and the n-th shuffle depend on the seed and n alone, whatever came before.
    """

    def __init__(self, seed: int) -> None:
        self.seed = _checked(seed)
        self.uniforms = 0
        self.shuffles = 0

    @property
    def state(self) -> tuple[int, ...]:
        return (self.seed, self.uniforms, self.shuffles)

    @state.setter
    def state(self, state: tuple[int, ...]) -> None:
        self.seed, self.uniforms, self.shuffles = state

    def uniform(self, count: int, low: float, high: float) -> np.ndarray:
        draws = self._words(count, _UNIFORM, self.uniforms)
        self.uniforms += 1
        return _between(draws, low, high)

    def shuffle(self, order: np.ndarray) -> None:
        """Sort by random keys of 64 bits. What comes out does not depend on the order before."""
        words = self._words(2 * len(order), _SHUFFLE, self.shuffles).astype(np.uint64)
        self.shuffles += 1
        keys = words[0::2] | words[1::2] << np.uint64(32)
        ranks = np.argsort(keys)
        ranked = keys[ranks]
        if (ranked[1:] == ranked[:-1]).any():  # equal keys keep their order, on every machine
            ranks = np.argsort(keys, kind="stable")  # which takes six times as long
        order[:] = np.sort(order)[ranks]

    def _words(self, count: int, purpose: int, call: int) -> np.ndarray:
        """The first `count` words of a call, uint32."""
        block = np.arange(-(-count // 4), dtype=np.uint64)
        counter = np.empty((len(block), 4), np.uint32)
        counter[:, 0] = block & np.uint64(_ALL_32)
        counter[:, 1] = block >> np.uint64(32)
        counter[:, 2] = call & _ALL_32
        counter[:, 3] = purpose
        key = (self.seed & _ALL_32, self.seed >> 32)
        return philox4x32(counter, key).reshape(-1)[:count]


GENERATORS: dict[str, type[XorShift64] | type[Philox]] = {
    "philox": Philox,
    "xorshift64": XorShift64,
}
"""By the names that `train { generator: … }` takes."""

_ALL_32 = 2**32 - 1
_ALL_64 = 2**64 - 1
_UNIFORM, _SHUFFLE = 0, 1
"""Purposes; augmentation is 2, and what else will draw from a counter takes the next number."""


def philox4x32(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Ten rounds over counters [N, 4] uint32 → random words [N, 4] uint32."""
    c0, c1, c2, c3 = (column.astype(np.uint64) for column in counter.T)
    k0, k1 = key
    half, low = np.uint64(32), np.uint64(_ALL_32)
    for _ in range(10):
        product_0 = c0 * np.uint64(0xD2511F53)
        product_2 = c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            (product_2 >> half) ^ c1 ^ np.uint64(k0),
            product_2 & low,
            (product_0 >> half) ^ c3 ^ np.uint64(k1),
            product_0 & low,
        )
        k0 = (k0 + 0x9E3779B9) & _ALL_32
        k1 = (k1 + 0xBB67AE85) & _ALL_32
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def _between(draws: np.ndarray, low: float, high: float) -> np.ndarray:
    """low + (high − low)·u with u = draw / 2³², every operation rounded to float32."""
    u = draws.astype(np.float32) / np.float32(2**32)
    span = np.float32(high) - np.float32(low)
    return np.float32(low) + span * u


def _checked(seed: Any) -> int:
    if isinstance(seed, bool) or not hasattr(seed, "__index__") or not 0 <= int(seed) <= _ALL_64:
        raise ArgumentError(
            f"The 'seed' of a generator must be a whole number from 0 to 2⁶⁴ − 1. Got {seed!r}.",
            argument="seed",
        )
    return int(seed)
