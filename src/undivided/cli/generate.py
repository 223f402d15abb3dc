"""`undivided generate`."""

from __future__ import annotations

from collections.abc import Callable

import click
import numpy as np

from undivided.cli.arguments import engine_options, use_option
from undivided.cli.targets import existing_model
from undivided.errors import DataError
from undivided.model import Model, load
from undivided.network import Text

__all__ = ["generate"]

_BYTES = 256

Ids = np.ndarray


@click.command()
@click.argument("model", metavar="MODEL")
@click.option("-p", "--prompt", required=True, help="What it goes on with, or turns into another.")
@click.option("-n", "--tokens", type=click.IntRange(1), help="How many tokens; else 200.")
@click.option(
    "--temperature",
    type=click.FloatRange(0.0),
    default=0.0,
    show_default=True,
    help="0 takes the most likely token; more is bolder.",
)
@click.option("--top-k", type=click.IntRange(1), help="Draw among so many most likely tokens.")
@click.option(
    "--top-p",
    type=click.FloatRange(0.0, 1.0, min_open=True),
    help="Draw among as few as have this probability together.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="What is drawn.")
@use_option
@engine_options
def generate(
    model: str,
    prompt: str,
    tokens: int | None,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int,
    threads: int | None,
    engine: str | None,
) -> None:
    """Go on with a text, token by token.

    A model of bytes or characters takes and gives text. Any other takes ids, such as "4 8 15".
    One of encoders and decoders turns the prompt into another sequence.
    """
    loaded = load(existing_model(model), threads, engine)  # type: ignore[arg-type]
    encode, decode = _coding(loaded)
    ids = encode(prompt)
    if not len(ids):
        raise DataError("The prompt is empty. Give at least one token to go on with.")
    goes_on = loaded.plan.inputs[-1].begins_with is None
    found = loaded.generate(
        ids if goes_on else [ids],
        (tokens or 200) if goes_on else tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    click.echo(decode(np.concatenate([ids, found])) if goes_on else decode(found[0]))


def _coding(model: Model) -> tuple[Callable[[str], Ids], Callable[[Ids], str]]:
    """How a model's tokens come from text, and how they become text again."""
    source, vocabulary = model.network.data, model.plan.input.vocabulary
    if isinstance(source, Text) and source.unit == "characters":
        return _of_characters(source.path)
    if vocabulary == _BYTES:
        return (
            lambda text: np.frombuffer(text.encode("utf-8"), np.uint8).astype(np.int32),
            lambda ids: ids.astype(np.uint8).tobytes().decode("utf-8", errors="replace"),
        )
    return _numbers, lambda ids: " ".join(map(str, ids))


def _of_characters(path: str) -> tuple[Callable[[str], Ids], Callable[[Ids], str]]:
    from undivided.data.text import characters_of

    known = characters_of(path)
    number = {character: i for i, character in enumerate(known)}

    def encode(text: str) -> Ids:
        for character in text:
            if character not in number:
                raise DataError(
                    f"The prompt has the character {character!r}, which is not in {path}. "
                    "The model has never seen it: leave it out."
                )
        return np.array([number[character] for character in text], np.int32)

    return encode, lambda ids: "".join(known[i] for i in ids)


def _numbers(text: str) -> Ids:
    try:
        return np.array([int(word) for word in text.replace(",", " ").split()], np.int32)
    except (ValueError, OverflowError):
        raise DataError(
            f"The prompt must hold ids, whole numbers such as '4 8 15': the model's tokens are "
            f"neither bytes nor characters of a text. Got {text[:40]!r}."
        ) from None
