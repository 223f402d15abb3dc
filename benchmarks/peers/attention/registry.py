"""Which systems there are, by the names that `--systems` takes."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass

from peers.attention.calls import Calls

__all__ = ["SYSTEMS", "Entry", "make"]


@dataclass(frozen=True)
class Entry:
    """Where a system is, and the library that it stands for."""

    library: str
    module: str
    kind: str
    needs: str = ""
    """Another library that it cannot do without."""

    @property
    def installed(self) -> bool:
        names = (name for name in (self.library, self.needs) if name)
        return all(importlib.util.find_spec(name) is not None for name in names)


SYSTEMS: dict[str, Entry] = {
    "undivided": Entry("undivided", "undivided_calls", "Tensors", needs="torch"),
    "undivided-numpy": Entry("undivided", "undivided_calls", "Arrays"),
    "torch-sdpa": Entry("torch", "torch_calls", "Sdpa"),
    "torch-flex": Entry("torch", "torch_calls", "Flex"),
    "torch-naive": Entry("torch", "torch_calls", "Naive"),
    "jax": Entry("jax", "jax_calls", "Jax"),
}


def make(name: str, threads: int) -> Calls:
    entry = SYSTEMS[name]
    module = importlib.import_module(f"peers.attention.{entry.module}")
    return Calls(getattr(module, entry.kind), threads)
