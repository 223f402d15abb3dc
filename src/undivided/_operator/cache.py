"""The keys and values of tokens already seen, so that a new token is all that is computed.

    cache = KeyValueCache(batch, num_kv_heads, head_dim)
    for token by token:
        cache.append(key, value)         # of the new tokens
        out = cache.attention(query)     # row by row what one causal pass over all would give

A sample keeps its last keys side by side from row 0, at positions `base` to `positions`:

    row        0          lengths           capacity
    sample 0   k3 k4 k5 k6 k7 .  .  .  .      base 3, positions 8, lengths 5
    sample 1   k0 k1 .  .  .  .  .  .  .      base 0, positions 2, lengths 2

A cache without a window doubles its room when it is full. With one, a query at position p sees
no key before p − window: what lies further back is dropped when there is no room left, and the
rest moves to the front. There is room for twice the window, so each move has been paid for by as
many tokens, and memory does not grow with the length of the text.

It holds arrays or tensors, whichever are appended first. Tensors stay on their device, and have no
gradients: what is in a cache is written over.
"""

# B batch, H heads, G heads that share a key/value head, n new tokens, T kept keys, D width of
# queries and keys, F width of values
#
# query    [B, H, n, D]      key, keys      [B, H/G, n or T, D]
# lengths  [B]               value, values  [B, H/G, n or T, F]

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from undivided._operator.masks import Mask
from undivided._operator.tensors import is_tensor
from undivided.errors import ArgumentError, suggest

__all__ = ["KeyValueCache"]

TYPES = (np.float16, np.float32, np.float64)
OWN = ("query_lengths", "key_lengths", "query_offset", "layout", "num_heads", "num_kv_heads")


def _attention(query: Any, key: Any, value: Any, **options: Any) -> Any:
    from undivided._operator.attention import attention  # which is much more than a cache needs

    return attention(query, key, value, **options)


class KeyValueCache:
    """Keys and values of up to `batch` texts that grow, each at its own pace.

    With `window`, tokens attend to that many before themselves, and older ones are forgotten.
    """

    def __init__(
        self,
        batch: int,
        num_kv_heads: int,
        head_dim: int,
        value_dim: int | None = None,
        *,
        capacity: int = 0,
        window: int | None = None,
        dtype: Any = np.float32,
    ) -> None:
        self.batch = _whole("batch", batch, at_least=0)
        self.num_kv_heads = _whole("num_kv_heads", num_kv_heads, at_least=1)
        self.head_dim = _whole("head_dim", head_dim, at_least=0)
        self.value_dim = _whole("value_dim", head_dim if value_dim is None else value_dim, 0)
        self.window = None if window in (None, -1) else _whole("window", window, at_least=0)
        self.dtype = _floating(dtype)
        self._like = _empty(self.dtype)
        self._keys, self._values = self._room(_whole("capacity", capacity, at_least=0))
        self.reset()

    def reset(self) -> None:
        """Forget all tokens; the room stays."""
        self._lengths = np.zeros(self.batch, np.int64)
        self._positions = np.zeros(self.batch, np.int64)
        self._new_rows = 0
        self._new = np.zeros(self.batch, np.int64)

    @property
    def lengths(self) -> np.ndarray:
        """[B] int64: how many keys are kept."""
        return self._lengths.copy()

    @property
    def positions(self) -> np.ndarray:
        """[B] int64: how many were ever appended, which is where the next token will stand."""
        return self._positions.copy()

    @property
    def keys(self) -> Any:
        """[B, H/G, longest, D], a view; beyond its own length a sample has none."""
        return self._keys[:, :, : self._longest]

    @property
    def values(self) -> Any:
        """[B, H/G, longest, F], like the keys."""
        return self._values[:, :, : self._longest]

    @property
    def capacity(self) -> int:
        """For how many tokens of a sample there is room."""
        return self._keys.shape[2]

    def append(self, key: Any, value: Any, lengths: Any = None) -> None:
        """Add new tokens: all rows, or of sample b the first lengths[b]."""
        self._make_alike(key, value)
        key = self._checked("key", key, self.head_dim)
        value = self._checked("value", value, self.value_dim)
        rows = key.shape[2]
        if value.shape[2] != rows:
            raise ArgumentError(
                f"KeyValueCache.append expects as many values as keys. Got {rows} keys and "
                f"{value.shape[2]} values.",
                argument="value",
            )
        new = self._checked_lengths(lengths, rows)
        self._make_room(new)
        start, stop = self._lengths, self._lengths + new
        if self.batch and (start == start[0]).all() and (new == rows).all():
            self._keys[:, :, start[0] : stop[0]] = key
            self._values[:, :, start[0] : stop[0]] = value
        else:
            for b in range(self.batch):
                self._keys[b, :, start[b] : stop[b]] = key[b, :, : new[b]]
                self._values[b, :, start[b] : stop[b]] = value[b, :, : new[b]]
        self._lengths = stop
        self._positions = self._positions + new
        self._new_rows, self._new = rows, new

    def attention(self, query: Any, **options: Any) -> Any:
        """What the tokens appended last take from all that is kept; causal unless said otherwise.

        `query` [B, H, n, D] has their rows; those beyond a sample's own length give 0. Options are
        those of `undivided.attention`, of which the cache knows lengths and offsets itself. A mask
        object counts positions from the beginning of the text; the last axis of a mask array or
        of a bias is that of `keys`.
        """
        self._check_query(query)
        if _kind(query) != _kind(self._like):
            raise ArgumentError(
                f"KeyValueCache.attention expects 'query' as {_kind(self._like)}, as what was "
                f"appended. Got {_kind(query)}.",
                argument="query",
            )
        for name in OWN:
            if options.get(name) is not None:
                raise ArgumentError(
                    f"KeyValueCache.attention knows {name!r} from what was appended. Leave it out.",
                    argument=name,
                )
        offsets = self._lengths - self._new
        options = {"causal": True, **options, "window": self._window(options.get("window"))}
        if isinstance(options.get("mask"), Mask):
            options["mask"] = self._placed(options["mask"])
        if (self._new < self._new_rows).any():
            options["query_lengths"] = self._new
        if (self._lengths < self._longest).any():
            options["key_lengths"] = self._lengths
        return _attention(query, self.keys, self.values, query_offset=offsets, **options)

    def __repr__(self) -> str:
        kept = sorted({int(n) for n in self._lengths}) or [0]
        span = f"{kept[0]}" if len(kept) == 1 else f"{kept[0]} to {kept[-1]}"
        window = "" if self.window is None else f", window {self.window}"
        return (
            f"KeyValueCache({self.batch} samples, {self.num_kv_heads} heads, {self.head_dim} and "
            f"{self.value_dim} wide, {_name(self.dtype)}{window}: {span} keys in room for "
            f"{self.capacity})"
        )

    # Room.

    @property
    def _longest(self) -> int:
        return int(self._lengths.max(initial=0))

    def _room(self, capacity: int) -> tuple[Any, Any]:
        shape = (self.batch, self.num_kv_heads, capacity)
        return (
            _zeros((*shape, self.head_dim), self._like),
            _zeros((*shape, self.value_dim), self._like),
        )

    def _make_alike(self, *given: Any) -> None:
        """Arrays for arrays and tensors for tensors, on their device: the first say which."""
        kinds = [_kind(x) for x in given]
        if kinds[0] != _kind(self._like) and not self._positions.any():
            self._like = _empty(self.dtype, given[0])
            self._keys, self._values = self._room(self.capacity)
        for name, x, kind in zip(("key", "value"), given, kinds, strict=True):
            if kind != _kind(self._like):
                raise ArgumentError(
                    f"KeyValueCache.append expects {name!r} as {_kind(self._like)}, as what was "
                    f"appended first. Got {kind}.",
                    argument=name,
                )
            if is_tensor(x) and x.requires_grad and sys.modules["torch"].is_grad_enabled():
                raise ArgumentError(
                    f"KeyValueCache.append expects {name!r} without a gradient: a cache is "
                    "written over and keeps none. Decode under torch.no_grad(), or append "
                    f"{name}.detach().",
                    argument=name,
                )

    def _make_room(self, new: np.ndarray) -> None:
        """For so many tokens more: forget what no query can see any longer, then grow."""
        if (self._lengths + new).max(initial=0) <= self.capacity:
            return
        kept, enough = self._lengths, 2 * self.capacity
        if self.window is not None:
            kept = np.minimum(kept, self.window)
            enough = min(enough, 2 * self.window + int(new.max(initial=0)))
        capacity = max(self.capacity, enough, int((kept + new).max(initial=0)))
        old = self._keys, self._values
        if capacity > self.capacity:
            self._keys, self._values = self._room(capacity)
        for b in range(self.batch):
            last = slice(self._lengths[b] - kept[b], self._lengths[b])
            self._keys[b, :, : kept[b]] = _moved(old[0][b, :, last])
            self._values[b, :, : kept[b]] = _moved(old[1][b, :, last])
        self._lengths = kept

    # What attention is told.

    def _window(self, asked: Any) -> tuple[int | None, int | None] | None:
        """The narrower of the cache's window and that which was asked for."""
        if asked is None:
            return None if self.window is None else (self.window, None)
        if self.window is None or not isinstance(asked, tuple) or len(asked) != 2:
            return asked  # what is no window is attention's to refuse
        left, right = asked
        if left is None or left == -1:
            left = self.window
        if left > self.window:
            raise ArgumentError(
                f"The 'window' of KeyValueCache.attention reaches {left} keys back, but the cache "
                f"keeps {self.window}. Make the cache with window={left}.",
                argument="window",
            )
        return left, right

    def _placed(self, mask: Mask) -> Any:
        """A mask of positions as one of rows."""
        if mask.extent is None and not (self._positions - self._new).any():
            mask.allows(0, 0)  # refuses `random`, which would draw again with each new key
            return mask  # nothing came before: rows are positions, and blocks can be skipped
        last = np.maximum(self._positions - 1, 0)[:, None]  # beyond it rows are not looked at
        first_query = (self._positions - self._new)[:, None]
        first_key = (self._positions - self._lengths)[:, None]
        q = np.minimum(first_query + np.arange(self._new_rows), last)
        k = np.minimum(first_key + np.arange(self._longest), last)
        return mask.allows(q[:, None, :, None], k[:, None, None, :])

    # Checks.

    def _checked(self, name: str, array: Any, width: int) -> Any:
        array = array.detach() if is_tensor(array) else np.asarray(array)
        wanted = (self.batch, self.num_kv_heads, width)
        if array.ndim != 4 or (array.shape[0], array.shape[1], array.shape[3]) != wanted:
            raise ArgumentError(
                f"KeyValueCache.append expects {name!r} of shape [{self.batch}, "
                f"{self.num_kv_heads}, n, {width}]: batch, key/value heads, new tokens, width. "
                f"Got {list(array.shape)}.",
                argument=name,
            )
        if _name(array.dtype) != _name(self.dtype):
            raise ArgumentError(
                f"KeyValueCache.append expects {name!r} in {_name(self.dtype)}, the cache's own "
                f"type. Got {_name(array.dtype)}. Convert it, or make the cache with dtype=.",
                argument=name,
            )
        return array

    def _checked_lengths(self, lengths: Any, rows: int) -> np.ndarray:
        if lengths is None:
            return np.full(self.batch, rows, np.int64)
        array = lengths.numpy(force=True) if is_tensor(lengths) else np.asarray(lengths)
        whole = array.dtype.kind in "iu" or array.size == 0
        fits = whole and array.shape == (self.batch,)
        if not fits or array.min(initial=0) < 0 or array.max(initial=0) > rows:
            found = f" {array.tolist()}" if fits else f" {array.dtype.name} {list(array.shape)}"
            raise ArgumentError(
                f"The 'lengths' of KeyValueCache.append must be {self.batch} whole numbers, one a "
                f"sample, from 0 to the {rows} rows of the key. Got{found}.",
                argument="lengths",
            )
        return array.astype(np.int64)

    def _check_query(self, query: Any) -> None:
        shape = tuple(getattr(query, "shape", np.shape(query)))
        B, n, D = self.batch, self._new_rows, self.head_dim
        if len(shape) != 4 or (shape[0], *shape[2:]) != (B, n, D) or shape[1] % self.num_kv_heads:
            raise ArgumentError(
                f"KeyValueCache.attention expects 'query' of shape [{B}, heads, {n}, {D}], a row "
                f"for each token appended last and heads in multiples of {self.num_kv_heads}. "
                f"Got {list(shape)}. Append keys and values first.",
                argument="query",
            )


def _whole(name: str, value: Any, at_least: int) -> int:
    whole = type(value) is int or isinstance(value, np.integer)
    if not whole or value < at_least:
        raise ArgumentError(
            f"The {name!r} of KeyValueCache must be a whole number ≥ {at_least}. Got {value!r}.",
            argument=name,
        )
    return int(value)


def _floating(dtype: Any) -> Any:
    """NumPy's type, or PyTorch's if that was given."""
    names = [known.__name__ for known in TYPES]
    if str(dtype) in ("torch.bfloat16", *(f"torch.{name}" for name in names)):
        return dtype
    try:
        known = None if dtype is None else np.dtype(dtype)  # NumPy takes None for float64
    except TypeError:
        known = None
    if known is None or known.name not in names:
        hint = suggest(dtype, names) if isinstance(dtype, str) else ""
        raise ArgumentError(
            f"The 'dtype' of KeyValueCache must be {', '.join(names[:-1])} or {names[-1]}. "
            f"Got {dtype!r}.{hint}",
            argument="dtype",
        )
    return known


# Arrays and tensors.


def _kind(x: Any) -> str:
    """What it is and where, in words."""
    return f"a PyTorch tensor on {x.device}" if is_tensor(x) else "a NumPy array"


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _empty(dtype: Any, like: Any = None) -> Any:
    """Nothing, of what a cache holds: as `like` is, else as the type says."""
    if not is_tensor(like) and isinstance(dtype, np.dtype):
        return np.zeros(0, dtype)
    torch = sys.modules["torch"]
    device = like.device if is_tensor(like) else None
    return torch.zeros(0, dtype=getattr(torch, _name(dtype)), device=device)


def _zeros(shape: tuple[int, ...], like: Any) -> Any:
    if not is_tensor(like):
        return np.zeros(shape, like.dtype)
    with sys.modules["torch"].inference_mode(False):  # to be written to outside of it too
        return like.new_zeros(shape)


def _moved(rows: Any) -> Any:
    """To be written where they perhaps are; NumPy minds of itself where the two overlap."""
    return rows.clone() if is_tensor(rows) else rows
