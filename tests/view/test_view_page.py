"""What is in the page, without a browser: numbers, precision, limits, and nothing that runs."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from typing import Any

import numpy as np
import pytest
from hostile import PAYLOADS
from seen import reference

import undivided
from undivided.view.text import visible

TEST = undivided.datasets.digits().test
STEPS = {"q", "k", "v", "dots", "out", "dOut", "dP", "dS", "dQ", "dK", "dV"}


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found
    return json.loads(found[1])


def weights_of(text: str, shape: list[int]) -> np.ndarray:
    """24-bit fixed point; NaN where it is forbidden."""
    raw = np.frombuffer(base64.b64decode(text), np.uint8).reshape(-1, 3).astype(np.int64)
    codes = raw @ (1, 256, 65536)
    return np.where(codes == 0xFFFFFF, np.nan, codes / 0xFFFFFE).reshape(shape)


def numbers_of(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f4").astype(np.float64)


def test_weights_and_steps_are_the_reference_engines(digits: undivided.Model) -> None:
    page = data_of(digits.view(TEST[:5]).html)
    engine = reference(digits)
    expected = engine.attention_weights(TEST.x[:5])
    for number, sample in enumerate(page["samples"]):
        x, y = TEST.x[number : number + 1], TEST.y[number : number + 1]
        inside = engine.look_inside(x, y)
        for layer, at in zip(page["layers"], sample["layers"], strict=True):
            (steps,) = inside.attention.values()
            for head in range(layer["heads"]):
                shown = weights_of(at["weights"][head], at["shape"])
                assert np.abs(shown - expected[layer["name"]][number, head]).max() < 3.1e-8
                kept = {name: numbers_of(text) for name, text in at["steps"][head].items()}
                assert set(kept) == STEPS
                for name, true in {
                    "q": steps.query,
                    "dots": steps.way.dots,
                    "out": steps.out,
                    "dOut": steps.d_out,
                    "dP": steps.back.dp,
                    "dS": steps.back.dz,
                    "dQ": steps.back.dq,
                    "dK": steps.back.dk,
                    "dV": steps.back.dv,
                }.items():
                    np.testing.assert_allclose(kept[name], true[0, head].ravel(), rtol=6e-8)
        assert sample["loss"] == pytest.approx(inside.loss, abs=1e-15)
        (said,) = sample["answer"]["positions"]
        assert said["predicted"] == str(inside.output.argmax())
        assert said["label"] == str(TEST.y[number])


def test_linear_attention_shows_the_weights_that_it_does_without() -> None:
    text = (
        "network N { input: (6, 4) layers: MultiHeadAttention(2, linear=true, causal=true,"
        " kv_heads=1) GlobalAveragePooling1D() Output(3) }"
    )
    model = undivided.Model(undivided.parse(text), engine="reference", seed=1)
    x, y = np.random.default_rng(0).normal(size=(1, 6, 4)).astype(np.float32), np.array([2])
    page = data_of(model.view(x, y).html)
    engine = reference(model)
    (steps,) = engine.look_inside(x, y).attention.values()
    (layer,), (at,) = page["layers"], page["samples"][0]["layers"]
    assert layer["linear"] is True
    expected = engine.attention_weights(x)["attention_1"][0]
    for head in range(2):
        shown = weights_of(at["weights"][head], at["shape"])
        assert (np.isnan(shown) == np.triu(np.ones((6, 6)), 1)).all()
        assert np.abs(np.nan_to_num(shown) - expected[head]).max() < 3.1e-8
        kept = {name: numbers_of(text) for name, text in at["steps"][head].items()}
        assert set(kept) == STEPS
        for name, true in {
            "dots": steps.way.dots,
            "dP": steps.back.dp,
            "dS": steps.back.da,
            "dQ": steps.back.dq,
        }.items():
            np.testing.assert_allclose(kept[name], true[0, head].ravel(), rtol=6e-8)
        np.testing.assert_allclose(kept["dK"], steps.back.dk[0, 0].ravel(), rtol=6e-8)
    # In the page's own words: dA = (dP − Δ)/n, and dS are the weights' own gradients.
    p, dp, n = steps.way.p, steps.back.dp, steps.way.n
    delta = (p * dp).sum(axis=-1, keepdims=True)
    da = np.where(steps.way.allowed, (dp - delta) / n, 0)
    np.testing.assert_allclose(steps.back.da, da, rtol=1e-12, atol=1e-15)


def test_the_policy_allows_this_script_and_this_style_alone(digits: undivided.Model) -> None:
    page = digits.view(TEST[:1]).html
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    rules = dict(rule.split(" ", 1) for rule in html.unescape(policy[1]).split("; ") if " " in rule)
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.S)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in policy[1]
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)


def test_hostile_names_stay_inside_the_data(digits: undivided.Model) -> None:
    names = [*PAYLOADS[:9], "".join(PAYLOADS)]
    page = digits.view(TEST[:2], classes=names, source=PAYLOADS[0]).html
    assert page.count("<script") == 2 and page.count("</script>") == 2
    assert page.isascii() or not re.search("[\\u202a-\\u202e\\u2066-\\u2069\\x00-\\x08]", page)
    for sample, label in zip(data_of(page)["samples"], TEST.y[:2], strict=True):
        assert sample["answer"]["positions"][0]["label"] == visible(names[label])


def test_every_hidden_character_is_shown() -> None:
    assert len(PAYLOADS) >= 60
    for payload in PAYLOADS:
        shown = visible(payload)
        assert len(shown) <= 2000
        assert all(character.isprintable() or character in "\u200c\u200d" for character in shown)
    assert visible("a\u202eb\x07\n") == "a⟨U+202E⟩b⟨U+0007⟩⏎"
    assert visible("naïve 👩‍🔬 漢字 עברית") == "naïve 👩‍🔬 漢字 עברית"
    assert visible(" ") == "␣" and visible("") == "⟨empty⟩" and visible(" a ") == " a "
    assert visible("x" * 300) == "x" * 200 + "…"


def test_a_small_limit_leaves_out_steps_and_then_samples_and_says_so(
    digits: undivided.Model,
) -> None:
    whole = data_of(digits.view(TEST[:6]).html)
    assert whole["leftOut"] == [] and whole["source"] == ""
    some = data_of(digits.view(TEST[:6], limit=90_000).html)
    kept = [bool(steps) for sample in some["samples"] for steps in sample["layers"][0]["steps"]]
    assert len(kept) == 12  # the weights of all samples go before the steps of any
    assert kept == sorted(kept, reverse=True) and any(kept) and not all(kept)
    missing = kept.count(False)
    assert some["leftOut"] == [f"the steps of {missing} of 12 maps, whose weights are here"]
    less = data_of(digits.view(TEST[:6], limit=2_100).html)
    assert [bool(steps) for steps in less["samples"][0]["layers"][0]["steps"]] == [True, False]
    steps = "the steps of 1 of 2 maps, whose weights are here"
    assert less["leftOut"] == ["5 of 6 samples", steps]
    least = data_of(digits.view(TEST[:6], limit=1).html)
    assert least["layers"][0]["heads"] == 1 == len(least["samples"][0]["layers"][0]["weights"])
    assert least["leftOut"] == ["1 of the maps of each sample", "5 of 6 samples"]


def test_without_classes_the_predicted_one_is_followed_back(digits: undivided.Model) -> None:
    (sample,) = data_of(digits.view(TEST.x[:1]).html)["samples"]
    (said,) = sample["answer"]["positions"]
    assert said["label"] is None and said["right"] is None
    inside = reference(digits).look_inside(TEST.x[:1], np.array([int(said["predicted"])]))
    assert sample["loss"] == pytest.approx(inside.loss, abs=1e-15)


def test_a_notebook_gets_the_page_in_a_frame_of_its_own(digits: undivided.Model) -> None:
    view = digits.view(TEST[:1])
    frame = view._repr_html_()
    assert 'sandbox="allow-scripts"' in frame
    found = re.search('srcdoc="([^"]*)"', frame)
    assert found and html.unescape(found[1]) == view.html
    assert repr(view) == f"View('DigitsAttention', {len(view.html):,} bytes)"


def test_refusals_say_what_to_do(digits: undivided.Model) -> None:
    with pytest.raises(undivided.ArgumentError, match=r"no attention layer.*MultiHeadAttention"):
        network = undivided.Network(input=(4,), layers=[undivided.Output(2)])
        undivided.Model(network).view(np.zeros((1, 4)))
    with pytest.raises(undivided.DataError, match="at least one sample"):
        digits.view(TEST.x[:0])
    with pytest.raises(undivided.ArgumentError, match=r"one list for each of 2 samples. Got 1"):
        digits.view(TEST.x[:2], tokens=[["a"]])
    with pytest.raises(undivided.ArgumentError, match=r"16 tokens of sample 0. Got 1"):
        digits.view(TEST.x[:1], tokens=[["a"]])
