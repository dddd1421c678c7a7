"""What a folder of results says about a paper: verdicts, and the figures that can be drawn. Each is computed once."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from recombine.errors import InvalidValue, listed
from recombine.reproduction.claims import Judgement, judge
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.paper import Paper
from recombine.reproduction.results import EDITION, Results

if TYPE_CHECKING:
    import xarray


class Findings:
    """A paper's claims and figures on the Datasets of one folder.

    Parameters
    ----------
    paper
        Whose studies the Datasets are of.
    results
        The folder.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import recombine as rc
    >>> with TemporaryDirectory() as folder:
    ...     findings = rc.Findings(rc.PAPER, rc.Results(folder))
    ...     findings.studies, list(findings.figures)
    ([], [])
    """

    def __init__(self, paper: Paper, results: Results) -> None:
        self.paper, self.results = paper, results

    @cached_property
    def studies(self) -> list[str]:
        """Studies with a Dataset of the present edition of their measurement, in the report's order."""
        return [name for name in self._present if name not in self.outdated]

    @cached_property
    def outdated(self) -> list[str]:
        """Studies whose Dataset was measured by another edition of their code: neither judged nor drawn."""
        versions = {name: self.results.dataset(name).attrs.get(EDITION, 1) for name in self._present}
        return [name for name, version in versions.items() if version != self.paper.studies[name].version]

    @cached_property
    def _present(self) -> list[str]:
        present = set(self.results.studies)
        return [name for name in self.paper.studies if name in present]

    @cached_property
    def judgements(self) -> list[Judgement]:
        """The verdicts that the Datasets give, in the order of the claims."""
        data = {name: self.results.dataset(name) for name in self.studies}
        judgements = judge(self.paper.claims.values(), data, self.results.registered, self.paper.versions)
        return [replace(own, reference=self.paper.reference.get(own.claim, "")) for own in judgements]

    @cached_property
    def figures(self) -> dict[str, FigureSpec]:
        """The figures for which all Datasets are here."""
        return {
            name: spec
            for name, spec in self.paper.figures.items()
            if all(study in self.studies for study in spec.studies)
        }

    def datasets(self, spec: FigureSpec) -> list[xarray.Dataset]:
        """The Datasets that a figure is drawn from."""
        return [self.results.dataset(study) for study in spec.studies]

    def caption(self, figure: FigureSpec | str) -> str:
        """A figure's caption, with numbers from the data.

        Parameters
        ----------
        figure
            One that can be drawn, or its name or number (`fig6`, `6`).

        Returns
        -------
        str
            Without the figure's name.
        """
        spec = self._figure(figure)
        return spec.caption(*self.datasets(spec))

    def draw(self, figure: FigureSpec | str) -> Any:
        """A figure, drawn from the Datasets; nothing is trained.

        Parameters
        ----------
        figure
            One that can be drawn, or its name or number (`fig6`, `6`).

        Returns
        -------
        matplotlib.figure.Figure
            One of pyplot's, which a notebook shows by itself.
        """
        spec = self._figure(figure)
        return spec.draw(*self.datasets(spec))

    def _figure(self, figure: FigureSpec | str) -> FigureSpec:
        """A figure for which all Datasets are here."""
        spec = self.paper.figure_named(figure) if isinstance(figure, str) else figure
        if missing := [study for study in spec.studies if study not in self.studies]:
            raise InvalidValue(
                "figure", spec.name, f"one of {listed(self.figures)} (results of {listed(missing)} are missing)"
            )
        return spec

    @property
    def preset(self) -> dict[str, Any]:
        """The preset of the folder."""
        return dict(self.results.provenance.get("preset") or {})
