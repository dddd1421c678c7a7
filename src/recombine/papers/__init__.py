"""Papers that can be re-run, by name. A paper is one package; `DEFAULT` is the one that commands are about."""

from __future__ import annotations

from recombine.papers import forced_rendering

PAPERS = {paper.name: paper for paper in (forced_rendering.PAPER,)}
DEFAULT = forced_rendering.PAPER
