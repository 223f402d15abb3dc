"""The systems that compute attention side by side, one file for each library.

Each runs in a process of its own (`peers/apart.py`) and nothing is imported from a library
elsewhere.
"""

from peers.attention.case import LEARNED, VARIANTS, Case, arrays, lengths, operations
from peers.attention.registry import SYSTEMS, Entry, make

__all__ = [
    "LEARNED",
    "SYSTEMS",
    "VARIANTS",
    "Case",
    "Entry",
    "arrays",
    "lengths",
    "make",
    "operations",
]
