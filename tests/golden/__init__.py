"""What results and pictures looked like when they were last looked at."""

import platform
import shutil
from pathlib import Path

from recombine.reproduction.results import Results

GOLDEN = Path(__file__).parent
RESULTS = GOLDEN / "results"
"""A folder of results of every study."""
PICTURES = GOLDEN / "pictures"
MADE_HERE = platform.machine() == "x86_64"
"""Whether this is the kind of processor that golden files were made on; on another one the last digits may differ, and
all digits of what is nearly 0 before its logarithm is taken."""


def copied(folder: Path, *studies: str) -> Path:
    """A copy of the results, of some studies alone: to open them all takes seconds."""
    shutil.copytree(RESULTS, folder)
    results = Results(folder)
    results.remove(set(results.studies) - {*studies})
    return folder
