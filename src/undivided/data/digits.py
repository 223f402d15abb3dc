"""The digits that come with the package: something to train on in seconds, without a download.

Origin, licence (CC BY 4.0) and how the split was made: `digits/README.md`.
"""

from __future__ import annotations

from pathlib import Path

from undivided.data.dataset import Dataset
from undivided.data.npz import read_npz

__all__ = ["digits"]

_FILE = Path(__file__).with_name("digits") / "digits.npz"


def digits() -> Dataset:
    """1,437 + 360 handwritten digits, `[N, 8, 8]` uint8 from 0 to 16, labels 0 to 9.

    The split is stored, not drawn: always the same samples in the same order. The same people
    wrote both parts.
    """
    return read_npz(_FILE)
