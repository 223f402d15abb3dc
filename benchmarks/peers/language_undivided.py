"""undivided on a language model: `Model.fit` and `Model.evaluate`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from peers.apart import keep_to_cores, watched
from peers.language import Language, network_of, windows_of

__all__ = ["Undivided"]


class Undivided:
    def prepare(self, task: Language, parameters: Sequence[np.ndarray]) -> None:
        import undivided

        keep_to_cores(task.threads)
        self.data = windows_of(task)
        self.model = undivided.Model(network_of(task), seed=task.seed, threads=task.threads)
        for mine, given in zip(self.model.parameters.values(), parameters, strict=True):
            if not np.array_equal(mine, given):
                raise ValueError("the model's parameters are not those that the peer is given")

    def learn(self, rows: np.ndarray, order: np.ndarray) -> tuple[float, float, float]:
        """One step for each batch of those windows: (seconds, mean loss, share of others).

        `fit` shuffles for itself; the order it makes is the one given here.
        """
        part = self.data.train.x[rows], self.data.train.y[rows]
        (entry,), others = watched(lambda: self.model.fit(part, epochs=1, log=False))
        return entry.seconds, entry.loss, others

    def bits(self) -> float:
        """Bits per character on the held-out windows."""
        return self.model.evaluate(self.data.test).metrics["bits_per_character"]

    def sample(self, prompt: str, count: int, temperature: float) -> str:
        """What the model goes on with."""
        ids = np.frombuffer(prompt.encode(), np.uint8).astype(np.int32)
        found = self.model.generate(ids, count, temperature=temperature, seed=1)
        return found.astype(np.uint8).tobytes().decode(errors="replace")
