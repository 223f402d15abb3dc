"""The page in a real browser: used with mouse and keys, and its numbers read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from chromium import Browser
from hostile import PAYLOADS
from seen import Open, reference

import undivided
from undivided.engines.engine import Several
from undivided.view import view_of
from undivided.view.text import visible

TEST = undivided.datasets.digits().test
PLACE = "location.hash"


def test_a_cell_a_head_and_a_sample_are_picked_and_say_the_engines_numbers(
    digits: undivided.Model, show: Open
) -> None:
    page = show(digits.view(TEST[:4]))
    weights = reference(digits).attention_weights(TEST.x[:4])["attention_1"]
    sample, head = 0, 0
    for sample, head, query, key in ((0, 0, 3, 9), (0, 1, 15, 0), (2, 1, 7, 7)):
        page.click(f"[data-sample='{sample}']")
        page.click(f"[data-head='{head}']")
        page.click("#cells", (key + 0.5) / 16, (query + 0.5) / 16)
        assert page.value(PLACE) == f"#{sample}.0.{head}.{query}.{key}"
        row, column = weights[sample, head, query], weights[sample, head, :, key]
        assert page.numbers("#readout data") == pytest.approx([row[key]], abs=1e-6)
        looks = page.numbers("[data-side=keys] .strongest data")
        assert looks == pytest.approx(np.sort(row)[:-6:-1], abs=1e-6)
        looked_at = page.numbers("[data-side=queries] .strongest data")
        assert looked_at == pytest.approx(np.sort(column)[:-6:-1], abs=1e-6)
        assert page.text("#label") == str(TEST.y[sample])
    assert page.value("document.querySelector('.step-card h3').textContent") == "1Query meets key"


@pytest.mark.parametrize("name", undivided.recipes())
def test_every_recipe_has_a_page(name: str, show: Open) -> None:
    network = undivided.recipe(name)
    model = undivided.Model(network, engine="reference")
    plan = model.plan
    if not plan.attentions:
        pytest.skip("no attention in it")
    if plan.parameter_count > 1_000_000:
        pytest.skip("too large for the reference engine in a test")
    random = np.random.default_rng(0)
    parts: list[np.ndarray] = []
    for entry in plan.inputs:
        shape = [2, *(n if isinstance(n, int) else 7 for n in entry.shape)]
        ids = random.integers(1, entry.vocabulary or 2, shape).astype(np.int32)
        numbers = random.random(shape).astype(np.float32)
        parts += [] if entry.begins_with is not None else [ids if entry.vocabulary else numbers]
    page = show(model.view(parts[0] if len(parts) == 1 else tuple(parts), limit=10**9))
    layers = page.value("document.querySelectorAll('[role=row]').length")
    assert layers == len(plan.attentions)
    page.click("#next")
    page.click("[role=row]:last-child .head:last-child")
    page.click("#cells", 0.3, 0.6)
    _, layer, head, i, j = (int(part) for part in page.value(PLACE)[1:].split("."))
    op = plan.attentions[layer]
    if len(parts) == len(plan.inputs) == 1:
        weights = reference(model).attention_weights(parts[0])[op.layer][1]
        found = page.numbers("#readout data")
        assert found == pytest.approx([weights[head, i, j]], abs=1e-6)
    steps = 8 if op.kind == "linear_attention" else 9
    assert page.value("document.querySelectorAll('.step-card').length") == steps


def test_the_worked_query_is_the_engines(digits: undivided.Model, show: Open) -> None:
    page = show(digits.view(TEST[:2]))
    inside = reference(digits).look_inside(TEST.x[1:2], TEST.y[1:2])
    steps = inside.attention["attention_1.heads"]
    way, back, h, i, j = steps.way, steps.back, 1, 6, 11
    page.click("#next")
    page.click(f"[data-head='{h}']")
    page.click("#cells", (j + 0.5) / 16, (i + 0.5) / 16)
    page.click("#softmax-table-all")
    q, k, v = (x[0, h] for x in (steps.query, steps.key, steps.value))
    p, dp, ds = (x[0, h, i] for x in (way.p, back.dp, back.dz))
    out, d_out = steps.out[0, h], steps.d_out[0, h]
    expected = {
        "[data-row=q] data": q[i],
        "[data-row=k] data": k[j],
        "[data-row=product] data": q[i] * k[j],
        "[data-name=dot-again]": [way.dots[0, h, i, j]],
        "[data-name=scaled]": [way.z[0, h, i, j]],
        "#softmax-table [data-name=dot]": way.dots[0, h, i],
        "#softmax-table [data-name=score]": way.z[0, h, i],
        "#softmax-table [data-name=p]": p,
        "[data-row=pv] data": p[j] * v[j],
        "[data-row=out] data": out[i],
        "[data-row=dOut] data": d_out[i],
        "[data-row=dp-product] data": d_out[i] * v[j],
        "#gradient-table [data-name=dP]": dp,
        "#gradient-table [data-name=dS]": ds,
        "[data-name=delta]": [(p * dp).sum()],
        "[data-row=dQ-share] data": steps.scale * ds[j] * k[j],
        "[data-row=dQ] data": back.dq[0, h, i],
        "[data-row=dK-share] data": steps.scale * ds[j] * q[i],
        "[data-row=dK] data": back.dk[0, h, j],
        "[data-row=dV-share] data": p[j] * d_out[i],
        "[data-row=dV] data": back.dv[0, h, j],
        "[data-name=loss]": [inside.loss],
    }
    for selector, numbers in expected.items():
        shown = page.numbers(selector)
        np.testing.assert_allclose(shown, numbers, rtol=1e-6, atol=1e-7, err_msg=selector)
    # What is written for people is the same number: here with its power of ten beside the row.
    total = page.text("#softmax-table tfoot [data-name='softmax-table-total-weight P']")
    assert total == "1.0000"


def test_a_query_of_linear_attention_is_worked_through(show: Open) -> None:
    text = (
        "network N { input: (6, 4) layers: MultiHeadAttention(2, linear=true, causal=true)"
        " MultiHeadAttention(2) GlobalAveragePooling1D() Output(3) }"
    )
    model = undivided.Model(undivided.parse(text), engine="reference", seed=1)
    x, y = np.random.default_rng(0).normal(size=(1, 6, 4)).astype(np.float32), np.array([2])
    page = show(model.view(x, y))
    steps = reference(model).look_inside(x, y).attention["attention_1.heads"]
    way, back, h, i, j = steps.way, steps.back, 1, 4, 2
    page.click(f"[data-layer='0'][data-head='{h}']")
    page.click("#cells", (j + 0.5) / 6, (i + 0.5) / 6)
    q, k = way.query_features[0, h, i], way.key_features[0, h, j]
    slope = np.minimum(way.query_features[0, h, i], 1)
    largest_first = np.argsort(-np.nan_to_num(way.p[0, h, i]), kind="stable")
    expected = {
        "[data-row=phi-q] data": q,
        "[data-row=phi-k] data": k,
        "[data-row=product] data": q * k,
        "[data-name=dot-again]": [way.dots[0, h, i, j]],
        "#softmax-table tbody [data-name=dot]": way.dots[0, h, i, largest_first],
        "#softmax-table tbody [data-name=p]": way.p[0, h, i, largest_first[: i + 1]],
        "[data-name=n]": [way.n[0, h, i, 0]],
        "[data-row=out] data": steps.out[0, h, i],
        "[data-name=dS]:not(td data)": [back.da[0, h, i, j]],
        "[data-row=dQ-share] data": back.da[0, h, i, j] * k * slope,
        "[data-row=dQ] data": back.dq[0, h, i],
        "[data-row=dK] data": back.dk[0, h, j],
        "[data-row=dV] data": back.dv[0, h, j],
    }
    for selector, numbers in expected.items():
        shown = page.numbers(selector)
        np.testing.assert_allclose(shown, numbers, rtol=1e-6, atol=1e-7, err_msg=selector)
    assert page.value("document.querySelectorAll('.step-card').length") == 8
    page.click("[data-layer='1'][data-head='0']")
    assert page.value("document.querySelectorAll('.step-card').length") == 9


def test_everything_is_reached_with_keys(digits: undivided.Model, show: Open) -> None:
    page = show(digits.view(TEST[:4]))
    page.value("document.body.focus()")
    order = []
    for _ in range(12):
        page.press("Tab")
        order.append(
            page.value(
                "(e => e.id || e.dataset.themeChoice || e.getAttribute('role') || e.className)"
                "(document.activeElement)"
            )
        )
        style = "getComputedStyle(document.activeElement)"
        assert page.value(f"{style}.outlineStyle") != "none"
    wanted = ["skip", "system", "option", "next", "gridcell", "cells", "shared", "slider", "slider"]
    assert order[: len(wanted)] == wanted

    def focus(selector: str) -> None:
        page.value(f"document.querySelector({selector!r}).focus()")

    focus("[role=option][tabindex='0']")
    page.press("ArrowRight", "ArrowRight", "ArrowLeft")
    assert page.value(PLACE).startswith("#1.")
    page.press("End")
    assert page.value(PLACE).startswith("#3.")
    focus("[role=gridcell][tabindex='0']")
    page.press("ArrowRight")
    assert page.value(PLACE) == "#3.0.1.10.10"
    focus("#cells")
    page.press("ArrowUp", "ArrowRight", "ArrowRight")
    assert page.value(PLACE) == "#3.0.1.9.12"
    assert "looks at patch 12" in page.text("#live")
    focus("[data-side=keys] [role=slider]")  # a patch down, one to the right
    page.press("ArrowDown", "ArrowRight")
    assert page.value(PLACE) == "#3.0.1.14.14"
    assert page.value("document.activeElement.getAttribute('aria-valuenow')") == "14"
    focus("[data-theme-choice=system]")
    page.press("ArrowRight", "ArrowRight")
    assert page.value("document.documentElement.dataset.theme") == "dark"


def test_every_control_has_a_name_and_a_role(digits: undivided.Model, show: Open) -> None:
    page = show(digits.view(TEST[:2]))
    nameless = page.value(
        "Array.from(document.querySelectorAll('button, [tabindex=\"0\"], [role]'))"
        ".filter(e => !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby')"
        " || e.textContent.trim())).length"
    )
    assert nameless == 0
    assert page.value("document.documentElement.lang") == "en"


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark_are_both_readable(digits: undivided.Model, show: Open, dark: bool) -> None:
    page = show(digits.view(TEST[:2]), dark=dark)

    def brightness(what: str) -> float:
        colour = page.value(f"getComputedStyle(document.body).{what}")
        red, green, blue = (int(part) / 255 for part in colour[4:-1].split(","))
        return 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2

    paper, ink = brightness("backgroundColor"), brightness("color")
    assert (paper < ink) == dark
    assert (max(paper, ink) + 0.05) / (min(paper, ink) + 0.05) > 7  # WCAG's AAA
    page.click("[data-theme-choice=light]" if dark else "[data-theme-choice=dark]")
    assert (brightness("backgroundColor") < brightness("color")) != dark


def test_names_are_only_ever_text(show: Open) -> None:
    network = undivided.Network(
        name="".join(PAYLOADS[:12]),
        input=(len(PAYLOADS), 4),
        layers=[
            undivided.MultiHeadAttention(2, name="".join(PAYLOADS[12:30])),
            undivided.GlobalAveragePooling1D(),
            undivided.Output(len(PAYLOADS)),
        ],
    )
    x = np.random.default_rng(0).normal(size=(2, len(PAYLOADS), 4))
    view = undivided.Model(network, engine="reference").view(
        x, np.array([0, 1]), classes=PAYLOADS, tokens=[PAYLOADS] * 2, source="".join(PAYLOADS)
    )
    page = show(view)
    children = "document.querySelectorAll('.words')[0].children"
    words = page.value(f"Array.from({children}, e => e.textContent)")
    assert words == [visible(payload) for payload in PAYLOADS]
    assert page.text("#title") == visible(network.name)
    for step in range(2):
        page.click(f"[data-sample='{step}']")
        page.click(f"[data-side=keys] [data-token='{20 + step}']")
        page.click("#softmax-table-all")
    assert page.value("window.ran") is None
    foreign = "img, iframe, object, embed, form, input, svg, math, video, base, marquee, details"
    assert page.value(f"document.querySelectorAll('{foreign}').length") == 0
    assert page.value("document.scripts.length") == 2
    assert page.value(PLACE) == "#1.0.0.21.21"


def test_a_script_put_into_the_page_does_not_run(
    browser: Browser, digits: undivided.Model, tmp_path: Path
) -> None:
    """The test above can fail, and the policy holds where escaping would not."""
    view = digits.view(TEST[:1])
    attack = "<script>window.ran=1</script><img src=x onerror=window.ran=1></body>"
    (tmp_path / "bad.html").write_text(view.html.replace("</body>", attack))
    page = browser.open(tmp_path / "bad.html")
    assert page.value("window.ran") is None
    assert len([text for text in page.complaints if "Content Security Policy" in text]) >= 2
    page.close()


def test_a_series_is_a_curve_and_other_tokens_are_numbers(show: Open) -> None:
    layers = [
        undivided.MultiHeadAttention(1),
        undivided.GlobalAveragePooling1D(),
        undivided.Output(2),
    ]
    network = undivided.Network(input=(None, 3), layers=layers)
    model = undivided.Model(network, engine="reference")
    random = np.random.default_rng(0)
    series = [random.normal(size=(length, 3)) for length in (20, 5)]
    page = show(model.view(series, np.array([0, 1])))
    assert page.value("document.querySelectorAll('.board canvas').length") == 2
    page.click("[data-side=keys] canvas", 0.99, 0.5)
    assert page.value(PLACE) == "#0.0.0.19.19"
    page.click("#next")  # a shorter one: what is picked comes back inside
    assert page.value(PLACE) == "#1.0.0.4.4"
    weights = reference(model).attention_weights(series)["attention_1"][1]
    assert page.numbers("#readout data") == pytest.approx([weights[0, 4, 4]], abs=1e-6)


def test_text_is_read_token_by_token_and_what_is_forbidden_is_striped(show: Open) -> None:
    words = ["to", "be", "or", "not", "to", "be", "that", "is", "the", "question"]
    known = sorted(set(words))
    ids = np.array([[known.index(word) for word in words]], np.int32)
    layers = [
        undivided.Embedding(len(known), 8),
        undivided.MultiHeadAttention(4, causal=True, kv_heads=2, softcap=2.0, positions="alibi"),
        undivided.Dense(len(known)),
    ]
    network = undivided.Network(input=(len(words),), layers=layers)
    model = undivided.Model(network, seed=3, engine="reference")
    page = show(model.view(ids, np.roll(ids, -1), vocabulary=known))
    engine = reference(model)
    (steps,) = engine.look_inside(ids, np.roll(ids, -1)).attention.values()
    shown = "Array.from(document.querySelectorAll('.words')[0].children, e => e.textContent)"
    assert page.value(shown) == words

    page.click("[data-head='3']")
    page.click("#cells", 0.95, 0.05)  # the last key, long after the first query
    assert page.text("#readout strong") == "forbidden"
    page.click("[data-side=queries] [data-token='4']")
    assert page.value("document.querySelectorAll('[data-side=keys] .striped').length") == 5
    assert page.value("document.querySelectorAll('[data-side=queries] .striped').length") == 4
    assert page.text("#label") == "be"  # what follows the second "to"
    predicted = known[int(engine.predict(ids)[0, 4].argmax())]
    assert page.text("#predicted") == predicted

    page.click("#cells", 0.25, 0.45)
    h, i, j = 3, 4, 2
    way, back = steps.way, steps.back
    for selector, expected in {
        "[data-name=score]:not(td data)": way.z[0, h, i, j],
        "[data-row=dQ] data": back.dq[0, h, i],
        "[data-row=dK] data": back.dk[0, h // 2, j],  # what both heads say to their key
        "[data-row=dQ-share] data": back.dz[0, h, i, j]
        * way.slope[0, h, i, j]
        * steps.key[0, h // 2, j],
    }.items():
        found = page.numbers(selector)
        np.testing.assert_allclose(found, np.ravel(expected), rtol=1e-6, atol=1e-7)
    assert "bias" in page.text("#step-2 + .formula")


def test_where_queries_and_keys_are_of_two_inputs_each_side_is_picked_alone(show: Open) -> None:
    text = (
        "network N { input: { source: (5), target: (4) } layers: Embedding(12, 8)"
        " TransformerEncoder(2) TransformerDecoder(2) Dense(12) }"
    )
    model = undivided.Model(undivided.parse(text), engine="reference")
    source, target = np.array([[3, 1, 4, 1, 5]]), np.array([[2, 7, 1, 8]])
    page = show(view_of(model, Several(source, target), None, vocabulary=list("abcdefghijkl")))
    page.click("[data-layer='2'][data-head='1']")
    page.click("[data-side=keys] [data-token='4']")
    page.click("[data-side=queries] [data-token='1']")
    assert page.value(PLACE) == "#0.2.1.1.4"
    assert page.text("#readout bdi") == "token 1 “h”"
    shown = (
        "Array.from(document.querySelectorAll('[data-side=%s] .word'), e => e.textContent).join('')"
    )
    assert (page.value(shown % "keys"), page.value(shown % "queries")) == ("dbebf", "chbi")
    weights = reference(model).attention_weights(Several(source, target))["decoder_1.cross"]
    assert page.numbers("#readout data") == pytest.approx([weights[0, 1, 1, 4]], abs=1e-6)


def test_a_class_token_stands_before_the_patches(show: Open) -> None:
    text = (
        "network N { input: (8, 8) layers: Patches(4) Dense(4) ClassToken()"
        " MultiHeadAttention(2) TokenAt(0) Output(10) }"
    )
    model = undivided.Model(undivided.parse(text), engine="reference")
    page = show(model.view(TEST[:1]))
    page.click("[data-side=keys] [data-token='0']")
    assert page.value(PLACE) == "#0.0.0.0.0"
    assert page.text(".of bdi") == "class token"
    page.click("[data-side=keys] canvas", 0.9, 0.9)
    assert page.value(PLACE) == "#0.0.0.4.4"
    page.value("document.querySelector('[data-side=keys] [role=slider]').focus()")
    page.press("ArrowUp", "ArrowUp")
    assert page.value(PLACE) == "#0.0.0.0.0"
    page.press("ArrowRight")
    assert page.value(PLACE) == "#0.0.0.1.1"
    weights = reference(model).attention_weights(TEST.x[:1])["attention_1"]
    assert page.numbers("#readout data") == pytest.approx([weights[0, 0, 1, 1]], abs=1e-6)


def test_values_are_shown_beside_those_to_be_met_without_a_verdict(show: Open) -> None:
    layers = [undivided.MultiHeadAttention(1), undivided.Dense(3)]
    network = undivided.Network(input=(6, 3), layers=layers, loss=undivided.MeanSquaredError())
    model = undivided.Model(network, engine="reference")
    x = np.random.default_rng(0).normal(size=(2, 6, 3)).astype(np.float32)
    page = show(model.view(x, x))
    page.click("#cells", 0.1, 0.4)
    written = ", ".join(f"{value:.4g}".replace("-", "−") for value in x[0, 2])
    assert page.text("#label") == written
    assert page.value("document.querySelectorAll('.mark, .bars').length") == 0
    inside = reference(model).look_inside(x[:1], x[:1])
    assert page.numbers("[data-name=loss]") == pytest.approx([inside.loss])
    page = show(model.view(x))
    assert "the sum of the model's outputs" in page.text(".intro")


def test_steps_that_were_left_out_lead_to_some_that_are_there(
    digits: undivided.Model, show: Open
) -> None:
    page = show(digits.view(TEST[:2], limit=2_100))
    assert "1 of 2 samples; the steps of 1 of 2 maps" in page.text("#left-out")
    page.click("[data-head='1']")
    assert "were left out" in page.text("#work")
    page.click("#worked")
    assert page.value(PLACE) == "#0.0.0.10.10"
    assert page.value("document.querySelectorAll('.step-card').length") == 9


def test_narrow_windows_do_not_scroll_sideways(digits: undivided.Model, show: Open) -> None:
    page = show(digits.view(TEST[:4]), size=(390, 800))
    assert page.value("document.documentElement.scrollWidth") <= 390
