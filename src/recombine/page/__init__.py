"""Run decoders in the browser: translate torch modules to programs, and build the explorer page that runs them."""

from recombine.page.explore import ExplorerPage, explore, report_explorer
from recombine.page.program import Program
from recombine.page.translate import translate

__all__ = ["ExplorerPage", "Program", "explore", "report_explorer", "translate"]
