"""Fix markers' thresholds for the prospective study: `python -m benchmarks.marker_thresholds results/paper`.

They were fixed once, on networks of seeds 100 to 107 (commit dcd399a). Fixing them again makes new criteria.
"""

import json
import sys

from recombine.papers.forced_rendering.prospective import FILE, fixed_thresholds
from recombine.reproduction.results import Results

if __name__ == "__main__":
    fixed = fixed_thresholds(Results.existing(sys.argv[1]).dataset("markers"))
    FILE.write_text(json.dumps(fixed, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
