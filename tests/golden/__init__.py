"""What results, pictures and screens looked like when they were last looked at."""

from pathlib import Path

GOLDEN = Path(__file__).parent
RESULTS = GOLDEN / "results"
"""A folder of results of every study."""
PICTURES = GOLDEN / "pictures"
