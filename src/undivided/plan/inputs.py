"""What comes in: one input, or a source and a target; numbers, or ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undivided.errors import ShapeError
from undivided.layers.embedding import Embedding
from undivided.network import Inputs
from undivided.plan.plan import Input, Ragged, Shape, show_shape

if TYPE_CHECKING:
    from undivided.network import Network

__all__ = ["inputs_of", "widths_read_as_ids"]


def inputs_of(network: Network, *, ragged: bool) -> list[Input]:
    """What a sample of the network consists of: numbers, or ids where an Embedding takes these.

    `ragged` says that samples may be shorter than the network declares.
    """
    embeddings = [layer for layer in network.layers if isinstance(layer, Embedding)]
    first = embeddings[0] if isinstance(network.layers[0], Embedding) else None
    if not isinstance(network.input, Inputs):
        return [_input("input", network.input, first, ragged)]
    own = embeddings[1:] if first else embeddings
    return [
        _input("source", network.input.source, first, ragged),
        _input("target", network.input.target, own[0] if own else first, ragged),
    ]


def widths_read_as_ids(network: Network) -> list[str]:
    """What to say where an input before an Embedding has the width of the embedded tokens."""
    given = network.input
    shapes = (given.source, given.target) if isinstance(given, Inputs) else (given,)
    sources = inputs_of(network, ragged=False)
    return [
        f"{source.name} {show_shape(_declared(shape))} comes before an Embedding {shape[1]} wide: "
        f"a sample is {'ids of any number' if shape[0] is None else f'{shape[0]} ids'}, which it "
        "turns into such rows"
        for source, shape in zip(sources, shapes, strict=True)
        if source.vocabulary is not None and len(shape) == 2
    ]


def _declared(shape: tuple[int | None, ...]) -> Shape:
    return tuple(Ragged("") if n is None else n for n in shape)


def _input(
    name: str, declared: tuple[int | None, ...], embedding: Embedding | None, ragged: bool
) -> Input:
    vocabulary = padding_id = None
    if embedding is not None:
        vocabulary, padding_id = embedding.input_dim, embedding.padding
        declared = _places_of_ids(name, declared, embedding)
    may_be_shorter = ragged or padding_id is not None
    shape: Shape = tuple(
        Ragged(name, n) if n is None or (i == 0 and may_be_shorter) else n
        for i, n in enumerate(declared)
    )
    return Input(name, shape, vocabulary, padding_id)


def _places_of_ids(
    name: str, declared: tuple[int | None, ...], embedding: Embedding
) -> tuple[int | None, ...]:
    """How many ids a sample has: (128,), or (128, 512) where rows are 512 wide."""
    if len(declared) == 1 or declared[1:] == (embedding.output_dim,):
        return declared[:1]
    shown = show_shape(_declared(declared))
    which = "input" if name == "input" else f"input {name!r}"
    error = ShapeError(
        f"Embedding expects ids, an input of shape (tokens,) or (tokens, {embedding.output_dim}), "
        f"where {embedding.output_dim} is its output_dim. The network's {which} is {shown}."
    )
    error.layer = embedding
    raise error
