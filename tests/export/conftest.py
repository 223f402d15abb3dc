"""Makes what these tests share importable, and the random networks of the native engine's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "native"))
