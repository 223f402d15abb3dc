"""Losses as instructions: the loss and the gradient of a row of the output, in one."""

from __future__ import annotations

from typing import Any

from undivided.training.losses import Loss

__all__ = ["loss_fields"]


def loss_fields(loss: Loss) -> tuple[str, dict[str, Any]]:
    """The kind of a loss's instruction, and what it says besides the buffers."""
    given = loss.attributes()
    if loss.primitive == "deviation":
        return "deviation", {"function": given["measure"], "scale": given.get("delta", 1.0)}
    return loss.primitive, {"scale": given["label_smoothing"]}
