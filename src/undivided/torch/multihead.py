"""MultiheadAttention: torch.nn.MultiheadAttention, computed by undivided.

    out = concat over heads(attention(Q·Wq, K·Wk, V·Wv))·Wo

Its parameters, their names and how they are drawn are those of PyTorch's own class, from which it
inherits them; what it does with them is below.
"""

# N samples, H heads, L queries, S keys, E model width

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from undivided._operator.attention import NAMES, attention
from undivided.errors import ArgumentError

__all__ = ["MultiheadAttention"]


class MultiheadAttention(nn.MultiheadAttention):
    """A drop-in for torch.nn.MultiheadAttention: the same arguments, state dict and numbers.

    A query that may attend to nothing gets no value (what comes out is the last bias), where
    PyTorch's gives NaN. The weights that need_weights=True gives are those before dropout.
    """

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """(out, weights), weights None unless needed.

        query, key, value     [L, N, E], [N, L, E] with batch_first, or [L, E] without a batch
        key_padding_mask      [N, S] or [S]: True where a key is to be *ignored*, or numbers that
                              are added to its scores
        attn_mask             [L, S] or [N·H, L, S]: True where attention is *not* allowed, or
                              numbers that are added to the scores
        need_weights          [N, L, S], or [N, H, L, S] with average_attn_weights=False; asking
                              changes no bit of out
        is_causal             a promise that attn_mask is causal, so that it need not be looked at
        """
        q, k, v = self._samples_first(query, key, value)
        keys = k.shape[1]
        q, k, v = self._projected(q, k, v)
        if self.bias_k is not None and self.bias_v is not None:
            k = torch.cat([k, self.bias_k.expand(len(k), 1, -1)], dim=1)
            v = torch.cat([v, self.bias_v.expand(len(v), 1, -1)], dim=1)
        if self.add_zero_attn:
            k, v = pad(k, (0, 0, 0, 1)), pad(v, (0, 0, 0, 1))

        if is_causal and attn_mask is None:
            raise _refuse(
                "attn_mask",
                "given with is_causal=True, which only promises that it is causal",
                "None",
                "See nn.Transformer.generate_square_subsequent_mask.",
            )
        added = k.shape[1] - keys  # keys that nobody masks
        promised = is_causal and key_padding_mask is None and not need_weights and not added
        masks = _Masks()
        if attn_mask is not None and not promised:
            masks.take("attn_mask", self._of_heads(attn_mask, q, keys), added)
        if key_padding_mask is not None:
            masks.take("key_padding_mask", self._of_keys(key_padding_mask, q, keys), added)
        found = attention(
            q,
            k,
            v,
            num_heads=self.num_heads,
            mask=masks.allowed,
            bias=masks.bias,
            causal="top_left" if promised else False,
            dropout=self.dropout if self.training else 0.0,
            return_weights=need_weights,
        )
        out, weights = found if need_weights else (found, None)
        if weights is not None and average_attn_weights:
            weights = weights.mean(dim=1)
        if query.ndim == 2:
            out, weights = out[0], None if weights is None else weights[0]
        elif not self.batch_first:
            out = out.transpose(0, 1)
        return self.out_proj(out), weights

    def _samples_first(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """[N, L, E] each, as views, their axes and widths checked."""
        widths = self.embed_dim, self.kdim, self.vdim
        axes = "[N, L, E]" if self.batch_first else "[L, N, E]"
        for name, x, width in zip(NAMES, inputs, widths, strict=True):
            if not isinstance(x, Tensor) or x.is_nested:
                found = "a nested one" if isinstance(x, Tensor) else type(x).__name__
                raise _refuse(name, "a plain tensor", found)
            if x.ndim not in (2, 3):
                raise _refuse(name, f"{axes}, or [L, E] without a batch", list(x.shape))
            if x.ndim != inputs[0].ndim:
                raise _refuse(name, f"of {inputs[0].ndim} axes, as query is", list(x.shape))
            if x.shape[-1] != width:
                raise _refuse(name, f"{width} wide", list(x.shape))
        if inputs[0].ndim == 2:
            return _each_once(inputs, lambda x: x[None])
        return inputs if self.batch_first else _each_once(inputs, lambda x: x.transpose(0, 1))

    def _projected(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Multiplied with their weights: in one product where they are one tensor."""
        if self._qkv_same_embed_dim:
            weight, bias = self.in_proj_weight, self.in_proj_bias
            if q is k is v:
                q, k, v = linear(q, weight, bias).chunk(3, dim=-1)
                return q, k, v
            weights = weight.chunk(3)
        else:
            weights = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
            bias = self.in_proj_bias
        biases = (None, None, None) if bias is None else bias.chunk(3)
        q, k, v = (linear(x, *own) for x, *own in zip((q, k, v), weights, biases, strict=True))
        return q, k, v

    def _of_heads(self, mask: Tensor, q: Tensor, keys: int) -> Tensor:
        """attn_mask as [1, 1, L, S] or [N, H, L, S]."""
        samples, queries = q.shape[:2]
        flat = (queries, keys)
        if tuple(mask.shape) == flat:
            return mask[None, None]
        if tuple(mask.shape) == (samples * self.num_heads, *flat):
            return mask.reshape(samples, self.num_heads, *flat)
        each = [samples * self.num_heads, *flat]
        raise _refuse("attn_mask", f"of shape {list(flat)} or {each}", list(mask.shape))

    def _of_keys(self, mask: Tensor, q: Tensor, keys: int) -> Tensor:
        """key_padding_mask as [N, 1, 1, S]."""
        samples = q.shape[0]
        if tuple(mask.shape) == (samples, keys) or (samples == 1 and tuple(mask.shape) == (keys,)):
            return mask.reshape(samples, 1, 1, keys)
        raise _refuse("key_padding_mask", f"of shape {[samples, keys]}", list(mask.shape))


class _Masks:
    """PyTorch's masks, each boolean or to be added, as a mask and a bias."""

    allowed: Tensor | None = None
    bias: Tensor | None = None

    def take(self, name: str, mask: Tensor, added: int) -> None:
        if mask.dtype == torch.bool:
            allowed = ~mask
            if added:
                allowed = pad(allowed, (0, added), value=True)
            self.allowed = allowed if self.allowed is None else self.allowed & allowed
        elif mask.is_floating_point():
            if added:
                mask = pad(mask, (0, added))
            self.bias = mask if self.bias is None else self.bias + mask
        else:
            raise _refuse(name, "boolean or of floats", mask.dtype)


def _each_once(inputs: tuple[Tensor, ...], change: Any) -> tuple[Tensor, ...]:
    """What was one tensor stays one tensor."""
    q, k, v = inputs
    changed_q = change(q)
    changed_k = changed_q if k is q else change(k)
    changed_v = changed_q if v is q else changed_k if v is k else change(v)
    return changed_q, changed_k, changed_v


def _refuse(argument: str, expected: str, found: object, hint: str = "") -> ArgumentError:
    text = f"The '{argument}' of MultiheadAttention must be {expected}. Got {found}. {hint}"
    return ArgumentError(text.rstrip(), argument=argument)
