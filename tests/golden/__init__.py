"""What results and pictures looked like when they were last looked at."""

import platform
from pathlib import Path

GOLDEN = Path(__file__).parent
RESULTS = GOLDEN / "results"
"""A folder of results of every study."""
PICTURES = GOLDEN / "pictures"
MADE_HERE = platform.machine() == "x86_64"
"""Whether this is the kind of processor that golden files were made on; on another one the last digits may differ, and
all digits of what is nearly 0 before its logarithm is taken."""
