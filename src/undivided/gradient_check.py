"""check_gradients: is a backward pass right?

Every derivative of every output number with respect to every input number (the full Jacobian)
is found twice: from the backward pass, and by moving the input number a little up and down and
watching the output. They have to agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undivided.errors import ArgumentError, UndividedError

__all__ = ["Difference", "GradientError", "GradientReport", "check_gradients"]

Index = tuple[int, ...]


@dataclass(frozen=True)
class Difference:
    """Where the Jacobians differ most: ∂ output[output_index] / ∂ inputs[input][input_index]."""

    input: int
    input_index: Index
    output_index: Index
    found: float
    """What backward says."""
    expected: float
    """What central differences say."""


@dataclass(frozen=True)
class GradientReport:
    """What `check_gradients` found. `str(report)` is for reading.

    `error` is max|J − J_fd| / max(1, max|J_fd|), the largest over the inputs that were checked.
    """

    ok: bool
    error: float
    tolerance: float
    derivatives: int
    """How many derivatives were compared."""
    worst: Difference
    advice: str = ""

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        if self.ok:
            return (
                f"backward is right: {self.derivatives} derivatives, "
                f"largest error {self.error:.1e} (tolerance {self.tolerance:.0e})"
            )
        w = self.worst
        text = (
            f"backward is wrong for input {w.input}: the derivative of "
            f"output{list(w.output_index)} with respect to "
            f"input{list(w.input_index)} is {w.expected:.7g}, backward says {w.found:.7g}.\n"
            f"This is the worst of {self.derivatives} derivatives; error {self.error:.1e}, "
            f"tolerance {self.tolerance:.0e}."
        )
        return f"{text}\n{self.advice}" if self.advice else text


class GradientError(UndividedError, AssertionError):
    """A backward pass does not match its forward pass; `report` says where."""

    def __init__(self, report: GradientReport) -> None:
        super().__init__(str(report))
        self.report = report


def check_gradients(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    *inputs: Any,
    step: float = 1e-5,
    tolerance: float = 1e-6,
    wrt: Sequence[int] | None = None,
) -> GradientReport:
    """Compare a backward pass with central differences, one derivative at a time, in float64.

        y         = forward(*inputs)
        gradients = backward(dy, *inputs)

    `backward` gets the gradient dy of some loss with respect to y and gives the gradients with
    respect to the inputs, as a tuple in their order: None for what it does not differentiate.
    One array will do where only one input has a gradient. Arrays of floats count as inputs to
    differentiate; anything else (labels, sizes, names) is handed through and may be left out.
    `wrt` picks inputs to check by number; else all with a gradient.

    Returns a report when backward is right and raises GradientError with the report's text when
    it is not. Keep inputs away from kinks, such as the 0 of relu.

    >>> import numpy as np
    >>> def forward(x, w):
    ...     return x @ w
    >>> def backward(dy, x, w):
    ...     return dy @ w.T, x.T @ dy
    >>> report = check_gradients(forward, backward, np.ones((2, 3)), np.ones((3, 2)))
    >>> report.ok, report.derivatives
    (True, 48)
    """
    inputs = tuple(_prepared(value) for value in inputs)
    y = _output(forward(*_copies(inputs)))
    found = _jacobians(backward, inputs, y)
    chosen = list(found) if wrt is None else [_chosen(number, found) for number in wrt]
    if not chosen:
        raise ArgumentError(
            "check_gradients found no input to differentiate: give arrays of floats, and a "
            "backward that returns a gradient for at least one of them."
        )

    error, worst, derivatives = -1.0, None, 0
    for number in chosen:
        expected = _central_differences(forward, inputs, number, y.shape, step)
        difference = np.abs(found[number] - expected)
        # argmax takes NaN for the largest, so a NaN in backward is found and not passed over.
        place = int(np.argmax(difference)) if difference.size else 0
        scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
        relative = float(difference.flat[place]) / scale if difference.size else 0.0
        derivatives += difference.size
        if worst is None or not relative <= error:
            error = relative
            worst = _difference_at(number, place, found[number], expected, y.shape, inputs)
        if np.isnan(error):
            break
    assert worst is not None
    advice = _advice(found[worst.input], worst)
    report = GradientReport(error <= tolerance, error, tolerance, derivatives, worst, advice)
    if not report.ok:
        raise GradientError(report)
    return report


def _prepared(value: Any) -> Any:
    """Arrays of floats in float64, so that rounding does not hide in the differences."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        if not np.isfinite(value).all():
            raise ArgumentError("check_gradients expects finite inputs. Got NaN or infinity.")
        return value.astype(np.float64)
    return value


def _differentiable(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def _copies(inputs: tuple[Any, ...]) -> list[Any]:
    """A forward or backward that writes into its inputs spoils only copies."""
    return [np.array(v) if isinstance(v, np.ndarray) else v for v in inputs]


def _output(y: Any) -> np.ndarray:
    array = np.asarray(y)
    if array.dtype != np.float64:
        raise ArgumentError(
            "check_gradients expects forward to return one array of float64 (all float inputs are "
            f"given as float64). Got {array.dtype.name}. In less precision, differences are mostly "
            "rounding."
        )
    if not array.size:
        raise ArgumentError(f"check_gradients expects an output. Got shape {array.shape}: empty.")
    if not np.isfinite(array).all():
        raise ArgumentError("check_gradients expects a finite output. Got NaN or infinity.")
    return array


def _jacobians(
    backward: Callable[..., Any], inputs: tuple[Any, ...], y: np.ndarray
) -> dict[int, np.ndarray]:
    """Number of the input → J [outputs, inputs]: one call of backward for each row.

    A dy of −2 in place of 1 catches, at no cost, what is not proportional to dy.
    """
    rows: dict[int, list[np.ndarray]] = {}
    for output in range(y.size):
        dy = np.zeros(y.shape)
        dy.flat[output] = -2.0
        gradients = _by_input(backward(dy, *_copies(inputs)), inputs)
        for number, gradient in gradients.items():
            rows.setdefault(number, []).append(gradient.reshape(-1) / -2.0)
    return {number: np.stack(row) for number, row in rows.items()}


def _by_input(gradients: Any, inputs: tuple[Any, ...]) -> dict[int, np.ndarray]:
    """What backward returned, under the numbers of the inputs it belongs to."""
    given = list(gradients) if isinstance(gradients, (tuple, list)) else [gradients]
    floats = [number for number, value in enumerate(inputs) if _differentiable(value)]
    if len(given) == len(inputs):
        numbers = list(range(len(inputs)))
    elif len(given) == len(floats):
        numbers = floats
    else:
        wanted = f"{len(inputs)} gradients, one for each input (None where there is none)"
        if len(floats) != len(inputs):
            wanted += f", or {len(floats)}, one for each array of floats"
        raise ArgumentError(
            f"check_gradients expects backward to return {wanted}. Got {len(given)}."
        )
    found = {}
    for number, gradient in zip(numbers, given, strict=True):
        if gradient is None:
            continue
        value = inputs[number]
        if not _differentiable(value):
            kind = value.dtype.name if isinstance(value, np.ndarray) else type(value).__name__
            raise ArgumentError(
                f"backward returns a gradient for input {number}, which is {kind}, not an array "
                "of floats. Pass it as float64 to have it checked, or return None for it."
            )
        if np.shape(gradient) != value.shape:
            raise ArgumentError(
                f"The gradient for input {number} must have that input's shape "
                f"{value.shape}. Got {np.shape(gradient)}."
            )
        found[number] = np.asarray(gradient, np.float64)
    return found


def _chosen(number: int, found: dict[int, np.ndarray]) -> int:
    if number not in found:
        known = ", ".join(str(n) for n in found) or "none"
        raise ArgumentError(
            f"The 'wrt' of check_gradients names input {number}, for which backward returns no "
            f"gradient. Those with one: {known}.",
            argument="wrt",
        )
    return number


def _central_differences(
    forward: Callable[..., Any],
    inputs: tuple[Any, ...],
    number: int,
    shape: tuple[int, ...],
    step: float,
) -> np.ndarray:
    """J [outputs, inputs] by (f(x + h) − f(x − h)) / 2h, h growing with x."""
    x = inputs[number]
    columns = np.empty((int(np.prod(shape)), x.size))
    for i in range(x.size):
        h = step * max(1.0, abs(x.flat[i]))
        ends = []
        for moved in (x.flat[i] + h, x.flat[i] - h):
            arguments = _copies(inputs)
            arguments[number].flat[i] = moved
            ends.append((moved, np.asarray(forward(*arguments)).reshape(-1)))
        (above, y_above), (below, y_below) = ends
        columns[:, i] = (y_above - y_below) / (above - below)
    return columns


def _difference_at(
    number: int,
    place: int,
    found: np.ndarray,
    expected: np.ndarray,
    shape: tuple[int, ...],
    inputs: tuple[Any, ...],
) -> Difference:
    if not found.size:
        return Difference(number, (), (), 0.0, 0.0)
    output, element = divmod(place, found.shape[1])
    return Difference(
        input=number,
        input_index=_index(element, inputs[number].shape),
        output_index=_index(output, shape),
        found=float(found[output, element]) + 0.0,  # −0 reads as 0
        expected=float(expected[output, element]) + 0.0,
    )


def _index(place: int, shape: tuple[int, ...]) -> Index:
    return tuple(int(i) for i in np.unravel_index(place, shape))


def _advice(found: np.ndarray, worst: Difference) -> str:
    """A guess at the mistake from how the two numbers are related."""
    if not np.isfinite(worst.found):
        return "backward gives a number that is not finite. Look for a division by zero or log(0)."
    if not np.isfinite(worst.expected):
        return "forward gives numbers that are not finite near this input. Choose another point."
    if worst.expected and abs(worst.found + worst.expected) <= 1e-5 * abs(worst.expected):
        return "The sign is the wrong way round."
    if worst.expected and not found.any():
        return "The whole gradient is zero. Is it filled in?"
    if worst.expected and worst.found:
        return f"The ratio of the two is {worst.found / worst.expected:.6g}. Is a factor missing?"
    return ""
