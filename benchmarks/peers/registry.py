"""Which systems there are, by the names that `--systems` takes."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from peers.system import System

__all__ = ["ENCODERS", "SYSTEMS", "Entry", "make"]


@dataclass(frozen=True)
class Entry:
    """Where a system is, how it is made, and the library that it stands for."""

    library: str
    module: str
    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def installed(self) -> bool:
        return importlib.util.find_spec(self.library) is not None


def _torch(**options: Any) -> Entry:
    return Entry("torch", "peers.torch_run", "Torch", options)


def _jax(**options: Any) -> Entry:
    return Entry("jax", "peers.jax_run", "Jax", options)


SYSTEMS: dict[str, Entry] = {
    "undivided": Entry("undivided", "peers.undivided_run", "Undivided"),
    "torch-eager": _torch(mode="eager"),
    "torch-eager-pooled": _torch(mode="eager", pooled=True),
    "torch-sdpa": _torch(mode="eager", sdpa=True),
    "torch-sdpa-pooled": _torch(mode="eager", sdpa=True, pooled=True),
    "torch-compile": _torch(mode="compile"),
    "torch-compile-pooled": _torch(mode="compile", pooled=True),
    "torch-step": _torch(mode="step"),
    "torch-step-pooled": _torch(mode="step", pooled=True),
    "jax": _jax(),
    "jax-pooled": _jax(pooled=True),
}
"""`-pooled` has the rewrite that undivided makes by itself, done by hand: the mean over tokens
is taken before the last feed-forward layer."""


ENCODERS: dict[str, Entry] = {
    "undivided": Entry("undivided", "peers.encoder_undivided", "Undivided"),
    "torch": Entry("torch", "peers.encoder_torch", "Torch"),
    "torch-compile": Entry("torch", "peers.encoder_torch", "Torch", {"compiled": True}),
    "jax": Entry("jax", "peers.encoder_jax", "Jax"),
}
"""The systems of `train_networks.py`, on the network of `encoder.py`."""


def make(entry: Entry) -> System:
    return getattr(importlib.import_module(entry.module), entry.kind)(**entry.options)
