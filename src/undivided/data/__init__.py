"""Where samples come from: built-in sets, files, and the one check that all of them pass.

Files are treated as hostile: nothing in them is executed, and what they declare is compared with
what they can hold before any memory is taken. Every refusal is a `DataError`.
"""

from .dataset import Dataset, Split, check_split
from .digits import digits
from .idx import read_idx
from .mnist import mnist
from .npz import read_npz
from .sources import BUILT_IN, open_data

__all__ = [
    "BUILT_IN",
    "Dataset",
    "Split",
    "check_split",
    "digits",
    "mnist",
    "open_data",
    "read_idx",
    "read_npz",
]
