"""Where samples come from: built-in sets, files, and the one check that all of them pass.

Files are treated as hostile: nothing in them is executed, and what they declare is compared with
what they can hold before any memory is taken. Every refusal is a `DataError`.
"""

from undivided.data.agreement import agreement
from undivided.data.dataset import Dataset, Split, check_split
from undivided.data.digits import digits
from undivided.data.flowers import iris
from undivided.data.idx import read_idx
from undivided.data.mnist import mnist
from undivided.data.npz import read_npz
from undivided.data.series import aeon, read_ts
from undivided.data.sources import BUILT_IN, open_data
from undivided.data.tasks import copy, induction, max_row, recall, reverse, sines, sort
from undivided.data.text import characters_of, text

__all__ = [
    "BUILT_IN",
    "Dataset",
    "Split",
    "aeon",
    "agreement",
    "characters_of",
    "check_split",
    "copy",
    "digits",
    "induction",
    "iris",
    "max_row",
    "mnist",
    "open_data",
    "read_idx",
    "read_npz",
    "read_ts",
    "recall",
    "reverse",
    "sines",
    "sort",
    "text",
]
