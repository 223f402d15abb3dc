"""Makes the conformance table importable by the tests beside it, however pytest was started."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
