"""KeyValueCache for tensors: of every type, where they are, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undivided
from undivided import KeyValueCache
from undivided.errors import ArgumentError

torch = pytest.importorskip("torch", "2.5")

B, H, G, N, D = 2, 4, 2, 14, 8


def text(dtype: Any = torch.float32) -> tuple[Any, Any, Any]:
    torch.manual_seed(1)
    return (
        torch.randn(B, H, N, D, dtype=dtype),
        torch.randn(B, G, N, D, dtype=dtype),
        torch.randn(B, G, N, 3, dtype=dtype),
    )


def in_steps(cache: KeyValueCache, tensors: Any, **options: Any) -> Any:
    outs = []
    for start, stop in [(0, 5), (5, 6), (6, 7), (7, N)]:
        q, k, v = (x[:, :, start:stop] for x in tensors)
        cache.append(k, v)
        outs.append(cache.attention(q, **options))
    return torch.cat(outs, dim=2)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16"])
def test_token_by_token_is_the_whole_pass(name: str, window: int | None) -> None:
    dtype = getattr(torch, name)
    tensors = text(dtype)
    cache = KeyValueCache(B, G, D, 3, window=window, dtype=dtype)
    found = in_steps(cache, tensors)
    expected = undivided.attention(*tensors, causal=True, window=(window, 0))
    assert found.dtype == dtype and cache.keys.dtype == dtype
    tolerance = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    assert name in repr(cache)


def test_tensors_and_arrays_give_the_same_bits_where_texts_are_ragged() -> None:
    tensors = text()
    kept, arrays = KeyValueCache(B, G, D, 3), KeyValueCache(B, G, D, 3)
    for start, new in [(0, [5, 2]), (5, [0, 3]), (8, [4, 1])]:
        q, k, v = (x[:, :, start : start + 5] for x in tensors)
        kept.append(k, v, torch.tensor(new))
        arrays.append(k.numpy(), v.numpy(), new)
        mask = undivided.masks.strided(2) | undivided.masks.window(1)
        found = kept.attention(q, mask=mask)
        assert np.array_equal(found.numpy(), arrays.attention(q.numpy(), mask=mask))
    assert np.array_equal(kept.keys.numpy(), arrays.keys)


def test_the_default_type_takes_whichever_comes_first() -> None:
    _, k, v = text()
    cache = KeyValueCache(B, G, D, 3)
    cache.append(k, v)
    assert isinstance(cache.keys, torch.Tensor) and cache.keys.data_ptr() != k.data_ptr()
    cache.reset()
    cache.append(k.numpy(), v.numpy())
    assert isinstance(cache.keys, np.ndarray)


def test_what_is_appended_in_inference_can_be_written_over_outside_of_it() -> None:
    _, k, v = text()
    cache = KeyValueCache(B, G, D, 3, capacity=20)
    with torch.inference_mode():
        cache.append(k[:, :, :3], v[:, :, :3])
    cache.append(k[:, :, 3:4], v[:, :, 3:4])
    assert torch.equal(cache.keys, k[:, :, :4])


def test_elsewhere_it_stays_there() -> None:
    tensors = [x.to("meta") for x in text()]
    cache = KeyValueCache(B, G, D, 3, window=4)
    assert in_steps(cache, tensors).device.type == "meta"
    assert cache.keys.device.type == "meta"


def appended(*pair: Any, first: Any = None, **options: Any) -> Any:
    cache = KeyValueCache(B, G, D, 3, **options)
    if first is not None:
        cache.append(*first)
    cache.append(*pair)
    return cache


def test_what_cannot_be() -> None:
    q, k, v = text()
    arrays = k.numpy(), v.numpy()
    wrong = {
        "KeyValueCache.append expects 'key' as a NumPy array, as what was appended first. Got a "
        "PyTorch tensor on cpu.": lambda: appended(k, v, first=arrays),
        "KeyValueCache.append expects 'key' as a PyTorch tensor on cpu, as what was appended "
        "first. Got a NumPy array.": lambda: appended(*arrays, first=(k, v)),
        "KeyValueCache.append expects 'value' as a PyTorch tensor on cpu, as what was appended "
        "first. Got a PyTorch tensor on meta.": lambda: appended(k, v.to("meta")),
        "KeyValueCache.append expects 'key' in float32, the cache's own type. Got bfloat16. "
        "Convert it, or make the cache with dtype=.": lambda: appended(k.bfloat16(), v.bfloat16()),
        "KeyValueCache.append expects 'value' without a gradient: a cache is written over and "
        "keeps none. Decode under torch.no_grad(), or append value.detach().": lambda: appended(
            k, v.clone().requires_grad_()
        ),
        "KeyValueCache.attention expects 'query' as a PyTorch tensor on cpu, as what was appended. "
        "Got a NumPy array.": lambda: appended(k, v).attention(q.numpy()),
    }
    for message, call in wrong.items():
        with pytest.raises(ArgumentError) as refused:
            call()
        assert str(refused.value) == message
