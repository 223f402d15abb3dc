"""recompute: the same bits from a smaller arena, in every network that the tables have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from agreement import batch_for, fill, start_values
from native_cases import CASES, Case
from test_bits import alike, same_bits

import undivided
from undivided.engines.native import NativeEngine
from undivided.network import Network
from undivided.plan.describe import describe, describe_json
from undivided.plan.plan import Plan, Ragged
from undivided.plan.schedule import schedule

DEEP = {
    "encoders": """network Encoders { input: (9, 12) layers:
        TransformerEncoder(num_heads=2, ff_dim=24, dropout=0.1) * 6
        GlobalAveragePooling1D Output(5) }""",
    "a decoder's": """network Decoder { input: (12) layers:
        Embedding(20, 16)
        TransformerDecoder(num_heads=2, ff_dim=24, dropout=0.2, positions="relative") * 6
        Dense(20, tied_to="embedding_1") }""",
    "both": """network Both { input: (10) layers:
        Embedding(20, 16)
        TransformerEncoder(num_heads=2, ff_dim=24) * 3
        TransformerDecoder(num_heads=2, ff_dim=24) * 3
        Output(20) }""",
    "pictures": """network Pictures { input: (12, 12, 1) layers:
        Conv2D(6, kernel_size=3, activation="gelu") * 3 MaxPooling2D(2) Flatten Output(3) }""",
}


def pair(plan: Plan, threads: int = 1) -> list[NativeEngine]:
    """Engines with the same numbers: one that keeps what backward needs, one that does not."""
    engines = [NativeEngine(replace(plan, recompute=each), threads) for each in (False, True)]
    for engine in engines:
        fill(engine, start_values(plan))
    return engines


def results(engine: NativeEngine, batch: Any) -> list[np.ndarray]:
    """Whatever needs a way back, with and without dropout's coins, and what training makes."""
    found = [
        engine.loss_and_gradients(batch.x, batch.y),
        engine.loss_and_gradients(batch.x, batch.y, step=3),
        engine.pull_back(batch.x, batch.dy),
    ]
    order = np.arange(len(batch.x), dtype=np.uint32)
    found.append(
        [engine.train(batch.x, batch.y, order, len(order), n, np.full(1, 0.01)).losses
         for n in range(2)]
    )  # fmt: skip
    arrays = [each for each in alike(found) if each.dtype != object]  # ids have no gradient
    return [*arrays, *map(np.array, engine.parameters.values())]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_table_has_the_same_bits(case: Case) -> None:
    plan = case.network.plan()
    batch = batch_for(
        plan,
        case.count,
        as_bytes=case.as_bytes,
        lengths=case.lengths,
        weighted=case.weighted,
    )
    kept, again = (results(engine, batch) for engine in pair(plan))
    same_bits(again, kept)


@pytest.mark.parametrize("name", DEEP)
def test_deep_networks_have_the_same_bits_on_any_number_of_threads(name: str) -> None:
    plan = undivided.parse(DEEP[name]).plan()
    ragged = any(isinstance(entry.shape[0], Ragged) for entry in plan.inputs)
    lengths = tuple(1 + n % 9 for n in range(21)) if ragged else ()
    batch = batch_for(plan, 21, as_bytes=name == "pictures", lengths=lengths)
    kept = results(pair(plan)[0], batch)
    for threads in (1, 2, 3):
        same_bits(results(pair(plan, threads)[1], batch), kept)


@pytest.mark.parametrize("name", DEEP)
def test_deep_networks_need_less_room(name: str) -> None:
    plan = undivided.parse(DEEP[name]).plan()
    kept, again = (schedule(replace(plan, recompute=each)) for each in (False, True))
    assert again.program("train").arena_floats < 0.8 * kept.program("train").arena_floats
    assert again.program("predict").arena_floats == kept.program("predict").arena_floats


def test_it_never_needs_more_room() -> None:
    smaller = 0
    for case in CASES:
        plan, longest = case.network.plan(), max(case.lengths, default=1)
        for purpose in ("train", "pull_back"):
            kept, again = (
                schedule(replace(plan, recompute=each), longest).program(purpose)  # type: ignore[arg-type]
                for each in (False, True)
            )
            assert again.arena_floats <= kept.arena_floats, case
            assert bool(again.recomputed) == (again.arena_floats < kept.arena_floats), case
            smaller += bool(again.recomputed)
    assert smaller > 100


def test_room_grows_with_the_root_of_the_depth() -> None:
    def arena(layers: int) -> int:
        text = DEEP["encoders"].replace("* 6", f"* {layers}").replace("(9, 12)", "(64, 12)")
        plan = replace(undivided.parse(text).plan(), recompute=True)
        return schedule(plan).program("train").arena_floats

    assert arena(64) < 3 * arena(16) < 9 * arena(4)


def test_models_take_the_setting_from_their_network() -> None:
    text = DEEP["encoders"].replace("layers:", "train { recompute: true } layers:")
    network = undivided.parse(text)
    assert network.train.recompute and undivided.parse(network.to_text()) == network
    facts, without = describe_json(network), describe_json(undivided.parse(DEEP["encoders"]))
    x, y = batch_for(network.plan(), 8).x, np.zeros(8, np.int32)
    losses = {}
    for engine in ("native", "reference"):  # the reference keeps everything: it is the definition
        model = undivided.Model(network, seed=1, engine=engine)
        losses[engine] = [each.loss for each in model.fit((x, y), epochs=2, batch_size=4)]
        if engine == "native":
            held = model._engine.allocated_bytes("train")
            assert held["arenas"] == facts["bytes"]["arena_training"] * held["workers"]
    np.testing.assert_allclose(losses["native"], losses["reference"], rtol=1e-4)
    assert without["bytes"]["arena_training"] > facts["bytes"]["arena_training"]


def described(recompute: bool) -> tuple[dict[str, Any], str]:
    network = undivided.parse(DEEP["encoders"])
    network = replace(network, train=replace(network.train, recompute=recompute))
    assert isinstance(network, Network)
    return describe_json(network), describe(network)


def test_describe_says_what_it_saves_and_costs() -> None:
    (kept, kept_page), (again, again_page) = described(False), described(True)
    assert kept["recompute"] | {"set": True} == again["recompute"]
    said = again["recompute"]
    assert said["arena_training_without"] == kept["bytes"]["arena_training"]
    assert said["arena_training_with"] == again["bytes"]["arena_training"]
    forward = again["multiply_adds"]["as_scheduled"]["forward"]
    assert 0.5 * forward < said["multiply_adds"] < forward
    for page in (kept_page, again_page):
        for number in said.values():
            assert number is True or f"{number:,}" in page
