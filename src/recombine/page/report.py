"""The explorer of a report, from the decoders that its folder keeps."""

from __future__ import annotations

from recombine.page.document import explorer
from recombine.page.explore import page_data
from recombine.page.labels import labels_of
from recombine.page.subject import subjects_of
from recombine.reproduction.explorer import kept_decoders
from recombine.reproduction.report.parts import Parts
from recombine.reproduction.results import Results

TITLE = "Drag the point into the hold-out"


def report_explorer(results: Results) -> Parts:
    """Parts of a page on which the decoders of a results folder run.

    Parameters
    ----------
    results
        A folder that keeps decoders.

    Returns
    -------
    Parts
        For `write_report`, as its panel `question`.
    """
    decoders = kept_decoders(results)
    subjects = subjects_of({own.name: own for own in decoders}, **dict.fromkeys(SETTINGS))
    labels = labels_of(decoders, [own.labels for own in decoders])
    return explorer(*page_data(subjects, title=TITLE, labels=labels))


SETTINGS = ("grid", "encode", "holdout", "targets", "background", "data")
"""Of modules; those of decoders that are kept are in their specs."""
