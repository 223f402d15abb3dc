"""Patterns: which tokens an attention layer lets see each other, by where they stand.

What a pattern allows, drawn out, is `print(pattern.mask())`; the masks themselves are those of
`undivided.masks`, which the operator takes as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from undivided.description import Description, argument
from undivided.errors import ArgumentError

if TYPE_CHECKING:
    from undivided._operator.masks import Mask

__all__ = ["AllOf", "AnyOf", "BlockLocal", "GlobalTokens", "Pattern", "Strided"]


@dataclass(frozen=True)
class Pattern(Description, family=True):
    """Who may see whom, whatever the tokens are."""

    def mask(self) -> Mask:
        """The pattern as a mask."""
        raise NotImplementedError


@dataclass(frozen=True)
class Strided(Pattern):
    """Tokens see those at a distance that `stride` divides."""

    stride: int = argument(doc="the distance, and all its multiples", at_least=1)

    def mask(self) -> Mask:
        from undivided import masks

        return masks.strided(self.stride)


@dataclass(frozen=True)
class BlockLocal(Pattern):
    """The sequence is cut into blocks, and tokens see those of their own block."""

    size: int = argument(doc="tokens in a block", at_least=1)

    def mask(self) -> Mask:
        from undivided import masks

        return masks.block_local(self.size)


@dataclass(frozen=True)
class GlobalTokens(Pattern):
    """The first tokens see all others, and all others see them."""

    count: int = argument(doc="how many tokens", at_least=1)

    def mask(self) -> Mask:
        from undivided import masks

        return masks.global_tokens(self.count)


@dataclass(frozen=True)
class AnyOf(Pattern):
    """What at least one of the patterns allows: `AnyOf { BlockLocal(64) GlobalTokens(1) }`."""

    patterns: tuple[Pattern, ...] = argument(doc="the patterns")

    def check(self) -> None:
        _not_empty(self)

    def mask(self) -> Mask:
        return reduce(lambda a, b: a | b, (pattern.mask() for pattern in self.patterns))


@dataclass(frozen=True)
class AllOf(Pattern):
    """What all of the patterns allow: `AllOf { Strided(2) BlockLocal(64) }`."""

    patterns: tuple[Pattern, ...] = argument(doc="the patterns")

    def check(self) -> None:
        _not_empty(self)

    def mask(self) -> Mask:
        return reduce(lambda a, b: a & b, (pattern.mask() for pattern in self.patterns))


def _not_empty(pattern: AnyOf | AllOf) -> None:
    if not pattern.patterns:
        raise ArgumentError(
            f"The 'patterns' of {pattern.keyword} are empty. Name at least one.",
            argument="patterns",
        )
