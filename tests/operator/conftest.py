"""Makes what these tests share importable, the rule of agreement too."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "native"), str(HERE.parent / "reference")]
