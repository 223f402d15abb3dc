"""`undivided generate`."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence

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
    encode, words = _coding(loaded)
    ids = encode(prompt)
    if not len(ids):
        raise DataError("The prompt is empty. Give at least one token to go on with.")
    goes_on = loaded.plan.inputs[-1].begins_with is None
    unsaid = words.said(ids) if goes_on else ""

    def say(_: int, token: int) -> None:
        nonlocal unsaid
        click.echo(unsaid + words.said([token]), nl=False)
        unsaid = ""

    try:
        loaded.generate(
            ids if goes_on else [ids],
            (tokens or 200) if goes_on else tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            on_token=say,
        )
    except KeyboardInterrupt:  # who has read enough keeps what stands there
        click.echo(words.rest())
        raise
    click.echo(words.rest())


class _Words:
    """Tokens as text, as they come: ids with a space between them."""

    _begun = False

    def said(self, ids: Sequence[int] | Ids) -> str:
        before, self._begun = " " * self._begun, True
        return before + " ".join(map(str, ids))

    def rest(self) -> str:
        """What is left at the end."""
        return ""


class _Utf8(_Words):
    """Bytes: a character appears with the last of its own, what is none as �."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def said(self, ids: Sequence[int] | Ids) -> str:
        return self._decoder.decode(bytes(int(i) for i in ids))

    def rest(self) -> str:
        return self._decoder.decode(b"", final=True)


class _Characters(_Words):
    def __init__(self, known: Sequence[str]) -> None:
        self._known = known

    def said(self, ids: Sequence[int] | Ids) -> str:
        return "".join(self._known[i] for i in ids)


def _coding(model: Model) -> tuple[Callable[[str], Ids], _Words]:
    """How a model's tokens come from text, and how they become text again."""
    source, vocabulary = model.network.data, model.plan.input.vocabulary
    if isinstance(source, Text) and source.unit == "characters":
        return _of_characters(source.path)
    if vocabulary == _BYTES:
        return lambda text: np.frombuffer(text.encode("utf-8"), np.uint8).astype(np.int32), _Utf8()
    return _numbers, _Words()


def _of_characters(path: str) -> tuple[Callable[[str], Ids], _Words]:
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

    return encode, _Characters(known)


def _numbers(text: str) -> Ids:
    try:
        return np.array([int(word) for word in text.replace(",", " ").split()], np.int32)
    except (ValueError, OverflowError):
        raise DataError(
            f"The prompt must hold ids, whole numbers such as '4 8 15': the model's tokens are "
            f"neither bytes nor characters of a text. Got {text[:40]!r}."
        ) from None
