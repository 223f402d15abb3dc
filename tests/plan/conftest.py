"""Makes the agreement of engines, which the native tests measure, importable here too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "native"))
