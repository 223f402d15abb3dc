"""Whether a network fits into a microcontroller: true bytes, and advice that helps."""

from __future__ import annotations

import re

import pytest
from c_programs import exported, models

import undivided
from undivided.export.calls import PRIMITIVES
from undivided.export.fit import READ_BACKWARD, fit, fit_json, fit_page
from undivided.export.targets import TARGETS, Target, target_named


def room(ram: int, flash: int) -> Target:
    return Target("small", "a small one", ram, flash)


@pytest.mark.parametrize("name", ["digits-attention", "mnist-attention-64"])
def test_bytes_to_predict_are_those_of_the_exported_file(tmp_path, name):
    (model,) = models([name])
    written = exported(model, tmp_path)
    predict, _ = fit(model.plan, target_named("esp32s3"))
    assert predict.flash == {"weights": written.weight_bytes}
    assert predict.ram["arena"] == written.arena_bytes
    assert predict.fits


def test_bytes_to_learn():
    network = undivided.Network(
        input=(6,),
        layers=[undivided.Dense(8, activation="relu"), undivided.Output(3)],
        optimizer=undivided.Adam(),
    )
    _, learn = fit(network.plan(), target_named("rp2040"))
    parameters = 4 * (6 * 8 + 8 + 8 * 3 + 3)
    assert learn.ram["weights"] == learn.ram["gradients"] == parameters
    assert learn.ram["optimizer"] == 2 * parameters
    assert learn.ram["input"] == 4 * 6
    # Fullest on the output's way back, which reads relu and gives its gradient; dense_1 waits.
    assert learn.ram["arena"] == 4 * (8 + 8 + 3 + 8)


def test_attention_keeps_its_weights_for_learning():
    def arena(heads: int) -> int:
        layers = [undivided.MultiHeadAttention(heads), undivided.GlobalAveragePooling1D()]
        network = undivided.Network(input=(32, 8), layers=[*layers, undivided.Output(3)])
        return fit(network.plan(), target_named("esp32s3"))[1].ram["arena"]

    assert arena(4) - arena(2) == 2 * 32 * 32 * 4


def test_what_does_not_fit_is_said_with_what_to_shrink():
    plan = undivided.recipe("mnist-attention-64").plan()
    page = fit_page(plan, room(20_480, 65_536))
    assert "Does NOT fit: 207 % of the flash and 261 % of the RAM." in page
    assert (
        "The largest weights are dense_2.weight (64, 128) with 32,768 bytes, dense_3.weight "
        "(128, 64) with 32,768 bytes, attention_1.query.weight (64, 64) with 16,384 bytes. "
        "Make those layers narrower."
    ) in page
    assert (
        "The arena is fullest at attention_1.value: activation_1.relu (49, 64) with 12,544 "
        "bytes, attention_1.query (49, 64) with 12,544 bytes, attention_1.key (49, 64) with 12,544 "
        "bytes. Fewer tokens (larger patches) or narrower layers make them smaller."
    ) in page


def test_the_advice_on_optimizers_says_whether_it_is_enough():
    plan = undivided.recipe("digits-attention").plan()  # AdamW keeps two arrays
    _, learn = fit(plan, room(2**30, 2**30))
    keeps = 2 * 4 * plan.parameter_count
    for missing, verdict in ((1, "that is enough"), (keeps + 1, "that is not enough")):
        _, tight = fit(plan, room(learn.ram_bytes - missing, 2**30))
        assert not tight.fits
        assert f"keeps nothing and saves {keeps:,} bytes; {verdict}." in tight.advice[0]
    assert not any("SGD" in line for line in learn.advice)


def test_advice_that_is_followed_helps():
    def ram(patch: int) -> int:
        network = undivided.parse(
            f"network N {{ input: (28, 28) layers: Patches({patch}) Dense(64) "
            "MultiHeadAttention(4) GlobalAveragePooling1D() Output(10) }"
        )
        return fit(network.plan(), target_named("cortex-m3"))[0].ram_bytes

    assert ram(14) < 20 * 1024 < ram(4)


def test_exactly_full_fits():
    plan = undivided.recipe("mnist-attention").plan()
    predict, _ = fit(plan, target_named("esp32s3"))
    assert fit(plan, room(predict.ram_bytes, predict.flash_bytes))[0].fits
    assert not fit(plan, room(predict.ram_bytes - 1, predict.flash_bytes))[0].fits
    assert not fit(plan, room(predict.ram_bytes, predict.flash_bytes - 1))[0].fits


def test_plain_data_says_the_same():
    plan = undivided.recipe("mnist-attention").plan()
    facts = fit_json(plan, target_named("cortex-m4"))
    assert facts["name"] == "cortex-m4" and facts["ram"] == 256 * 1024
    assert facts["predict"]["fits"] is True and facts["predict"]["advice"] == []
    page = fit_page(plan, target_named("cortex-m4"))
    for size in (*facts["predict"]["ram"].values(), *facts["learn"]["ram"].values()):
        assert f"{size:,}" in page
    assert re.search(r"^On cortex-m4 \(.*256 KB of RAM, 1 MB of flash\)", page)


def test_targets_are_named_once_and_a_wrong_name_is_refused():
    names = [target.name for target in TARGETS]
    assert len(set(names)) == len(names)
    assert {"esp32s3", "cortex-m4", "cortex-m7", "rp2040"} <= set(names)
    with pytest.raises(undivided.ArgumentError) as refused:
        target_named("esp32-s3")
    assert str(refused.value) == (
        "There is no target 'esp32-s3'. Did you mean 'esp32s3'? "
        f"The targets are {', '.join(names)}."
    )


def test_every_primitive_says_what_its_backward_reads():
    assert set(READ_BACKWARD) == set(PRIMITIVES)
