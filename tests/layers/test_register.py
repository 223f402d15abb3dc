"""Layers of one's own: the language knows them at once, and bad ones are refused with a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

import undivided
from undivided.layers.documentation import page_of

PAGE = Path(__file__).parents[2] / "docs" / "language.md"


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test registers is unknown to the next."""
    before = dict(undivided.Layer.members)
    yield
    undivided.Layer.members.clear()
    undivided.Layer.members.update(before)


def network(*layers: str) -> undivided.Network:
    return undivided.parse(f"network Own {{ input: (4) layers: {' '.join(layers)} Output(3) }}")


def test_a_class() -> None:
    @undivided.register
    class Stretch(undivided.Layer):
        """y = x · factor."""

        unit: ClassVar[str] = "none"
        factor: float = undivided.argument(2.0, doc="how far", above=0.0)
        sign: Literal["plus", "minus"] = "plus"

        def lower(self, builder: Any, x: Any) -> Any:
            return builder.rescale(x, self.factor if self.sign == "plus" else -self.factor, 0.0)

    made = network("Stretch(3, sign=minus)")
    assert made.layers[0] == Stretch(3.0, "minus")
    assert undivided.parse(made.to_text()) == made
    assert made.plan().layers[0] == ("stretch_1", "Stretch")
    assert "how far" in page_of(Stretch)
    with pytest.raises(undivided.LanguageError, match="'factor' of Stretch must be a number > 0"):
        network("Stretch(-1)")
    with pytest.raises(undivided.ArgumentError, match="'sign' of Stretch must be one of 'plus'"):
        Stretch(sign="both")


def test_a_function_in_both_engines() -> None:
    @undivided.register
    def Cubed(builder: Any, x: Any, scale: float, twice: bool = False) -> Any:
        """y = scale·x³."""
        y = builder.multiply(builder.multiply(x, x), x)
        return builder.rescale(y, scale * (1 + twice), 0.0)

    x, y = np.linspace(-1, 1, 20, dtype="f4").reshape(5, 4), np.arange(5) % 3
    made = network("Dense(6)", "Cubed(0.5, twice=true)")
    native, reference = (undivided.Model(made, 1, engine=e) for e in ("native", "reference"))
    np.testing.assert_allclose(native.logits(x), reference.logits(x), atol=1e-6)
    for name, gradient in native.loss_and_gradients(x, y)[1].items():
        expected = reference.loss_and_gradients(x, y)[1][name]
        np.testing.assert_allclose(gradient, expected, atol=1e-6)
    with pytest.raises(undivided.LanguageError, match="Cubed needs the argument 'scale'"):
        network("Cubed()")


def test_a_model_comes_back_and_says_what_it_misses(tmp_path: Path) -> None:
    @undivided.register
    def Halved(builder: Any, x: Any) -> Any:
        return builder.rescale(x, 0.5, 0.0)

    path = tmp_path / "own.safetensors"
    model = undivided.Model(network("Halved()"), seed=1)
    model.save(path)
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(undivided.load(path).logits(x), model.logits(x))
    del undivided.Layer.members["Halved"]
    with pytest.raises(undivided.ModelFileError, match=r"its network has Halved, which .*--use"):
        undivided.load(path)


def test_a_name_is_taken_once_and_may_be_defined_again() -> None:
    def define(module: str, scale: float) -> None:
        def Mine(builder: Any, x: Any) -> Any:
            return builder.rescale(x, scale, 0.0)

        Mine.__module__ = module
        undivided.register(Mine)

    define("notebook", 1.0)
    define("notebook", 2.0)  # the cell, run again
    (operation,) = [op for op in network("Mine()").plan().operations if op.kind == "rescale"]
    assert operation.attributes["scale"] == 2.0
    with pytest.raises(undivided.ArgumentError, match="There is Mine already, from notebook"):
        define("elsewhere", 3.0)
    with pytest.raises(undivided.ArgumentError, match=r"There is Dense already, from undivided\."):

        @undivided.register
        def Dense(builder: Any, x: Any) -> Any:
            return x

    assert undivided.Layer.members["Dense"] is undivided.Dense


def bad_definitions() -> dict[str, tuple[Any, str]]:
    class NoLower(undivided.Layer):
        pass

    class Odd(undivided.Layer):
        numbers: list[int]

        def lower(self, builder: Any, x: Any) -> Any:
            return x

    class WrongDefault(undivided.Layer):
        units: int = "many"  # type: ignore[assignment]

        def lower(self, builder: Any, x: Any) -> Any:
            return x

    for name in ("NoLower", "Odd", "WrongDefault"):
        del undivided.Layer.members[name]

    @dataclass
    class Stranger:
        pass

    def Arguments(x: Any, builder: Any) -> Any:
        return x

    def Starred(builder: Any, x: Any, *more: int) -> Any:
        return x

    def Untyped(builder, x, units):  # type: ignore[no-untyped-def]
        return x

    return {
        "no lower": (NoLower, "NoLower has no `lower"),
        "a list": (Odd, "'numbers' of the layer Odd"),
        "a wrong default": (WrongDefault, "'units' of WrongDefault must be a whole number"),
        "no layer": (Stranger, "Stranger is none"),
        "order": (Arguments, "Arguments must be a function of"),
        "any number": (Starred, "Starred must be a function of"),
        "no type": (Untyped, "'units' of the layer Untyped needs a type"),
        "a number": (3, "Got 3"),
    }


@pytest.mark.parametrize("name", bad_definitions())
def test_a_bad_definition_says_what_is_wrong(name: str) -> None:
    definition, message = bad_definitions()[name]
    with pytest.raises(undivided.ArgumentError, match=re.escape(message)):
        undivided.register(definition)
    assert getattr(definition, "__name__", "") not in undivided.Layer.members


def test_what_goes_wrong_while_lowering_is_told_with_its_place() -> None:
    @undivided.register
    def Nothing(builder: Any, x: Any) -> Any:
        return None

    @undivided.register
    def Divided(builder: Any, x: Any) -> Any:
        return 1 / 0

    @undivided.register
    def Unknown(builder: Any, x: Any) -> Any:
        return builder.convolve(x)

    for layer, told in [
        ("Nothing", r"Nothing \(nothing_1\) must return what one of the builder's .* returns None"),
        ("Divided", r"Divided \(divided_1\): .*test_register\.py, line \d+: ZeroDivisionError"),
        ("Unknown", r"test_register\.py, line \d+: AttributeError: .*'convolve'"),
        ("Residual { Divided }", r"Divided \(divided_1\): .*ZeroDivisionError: division by zero"),
    ]:
        with pytest.raises(undivided.ArgumentError, match=told) as caught:
            network(layer).plan()
        assert ":1:" in str(caught.value)  # and shown where it stands in the text


def test_files_of_layers(tmp_path: Path) -> None:
    good = tmp_path / "mine.py"
    good.write_text(
        "from __future__ import annotations\nimport undivided\n@undivided.register\n"
        "def Twice(builder, x, by: int = 2):\n    return builder.rescale(x, by, 0.0)\n"
    )
    undivided.use(good)
    undivided.use(good)  # once more is the same
    assert network("Twice(3)").layers[0].by == 3  # type: ignore[attr-defined]
    leaving = tmp_path / "leaving.py"
    leaving.write_text("import sys\nsys.exit(3)\n")
    with pytest.raises(undivided.ArgumentError, match=r"leaving\.py, line 2: SystemExit: 3"):
        undivided.use(leaving)
    bad = tmp_path / "bad.py"
    bad.write_text("import undivided\n\nundivided.regster\n")
    with pytest.raises(undivided.ArgumentError, match=r"bad\.py, line 3: AttributeError"):
        undivided.use(bad)
    bad.write_text("def (:\n")
    with pytest.raises(undivided.ArgumentError, match=r"bad\.py, line 1: SyntaxError"):
        undivided.use(bad)
    with pytest.raises(undivided.ArgumentError, match="There is no Python file"):
        undivided.use(tmp_path / "none.py")


def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S):
        exec(compile(block, str(PAGE), "exec"), names)
    assert "Gate" in capsys.readouterr().out
