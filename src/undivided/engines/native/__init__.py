"""The binding's Python half: a plan as a native engine, and what the machine offers it."""

from undivided.engines.native.engine import NativeEngine
from undivided.engines.native.machine import available_threads, instruction_set

__all__ = ["NativeEngine", "available_threads", "instruction_set"]
