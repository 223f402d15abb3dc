"""The systems that train side by side, one file for each library, all behind one interface.

Nothing is imported from a library before a system is made, and that happens in a process of the
system's own (`apart.py`): none inherits another's threads, allocator or floating-point mode.
"""

from peers.apart import Apart
from peers.registry import ENCODERS, SYSTEMS, Entry, make
from peers.system import System, Task, patches

__all__ = ["ENCODERS", "SYSTEMS", "Apart", "Entry", "System", "Task", "make", "patches"]
