"""A paper as one record, the one thing that the machinery is handed; and what a folder of results says about it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module, resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.errors import InvalidValue, listed
from recombine.reproduction.claims import Claim, Judgement, judge
from recombine.reproduction.explorer import DecoderChoice, TrainingPanel
from recombine.reproduction.figures import FigureSpec, Section, full_name
from recombine.reproduction.preset import Preset, assembled
from recombine.reproduction.results import EDITION, Results
from recombine.reproduction.study import Study

if TYPE_CHECKING:
    import xarray

REFERENCE = "reference.json"
"""File of a paper's package with the verdicts of its reference results (`recombine report --reference`)."""


@dataclass(frozen=True)
class Paper:
    """A paper that can be re-run."""

    name: str
    package: str
    """Name of the package that it is put together from."""
    title: str
    source: str
    """Where it appeared."""
    question: str
    """What it asks, in a few words."""
    preset: type[Preset]
    """The preset with the settings of all its studies; the defaults are the paper's."""
    studies: Mapping[str, Study[Any]]
    """By name, in the order in which a report tells them."""
    claims: Mapping[str, Claim]
    """By name, in the order of their numbers."""
    figures: Mapping[str, FigureSpec]
    """By name: the paper's in the order of their numbers, then extra ones."""
    sections: tuple[Section, ...] = ()
    """Parts of a report, in the order of the argument."""
    explorer: DecoderChoice | None = None
    """Which of the trained decoders a report's explorer has."""
    training_panel: TrainingPanel | None = None
    """A small decoder that the report trains live."""
    write_markers: Callable[[Results, Sequence[Judgement], Path], None] | None = None
    """Writes the record of how well numbers tell composing from failing networks, which `diagnose` quotes."""

    @classmethod
    def assemble(cls, package: str, questions: Sequence[str], **about: Any) -> Paper:
        """A paper from a package with one to three modules per question, in the order in which a report tells them.

        For the question `stripes` it has `stripes.py`, which defines `STUDY`. `CLAIMS` and `FIGURES` are defined there,
        or in `stripes_claims.py` and `stripes_figure.py`. It may have `sections.py` with `SECTIONS`, and `explorer.py`
        with `EXPLORER` and `TRAINING_PANEL`. `about` is its title, source and question.
        """
        studies: list[Study[Any]] = [import_module(f"{package}.{name}").STUDY for name in questions]
        modules = [f"{package}.{name}{part}" for name in questions for part in ("", "_claims", "_figure")]
        claims = [claim for module in modules for claim in _optional(module, "CLAIMS", ())]
        figures = [spec for module in modules for spec in _optional(module, "FIGURES", ())]
        return cls(
            name=package.rpartition(".")[2],
            package=package,
            preset=assembled((study.settings for study in studies), package),
            studies=_by_name("study", studies),
            claims=_by_name("claim", sorted(claims, key=_number)),
            figures=_by_name("figure", sorted(figures, key=lambda own: (not own.numbered, _number(own)))),
            sections=tuple(_optional(f"{package}.sections", "SECTIONS", ())),
            explorer=_optional(f"{package}.explorer", "EXPLORER", None),
            training_panel=_optional(f"{package}.explorer", "TRAINING_PANEL", None),
            **about,
        )

    @cached_property
    def presets(self) -> dict[str, Preset]:
        """Every preset by name, the paper's own settings last."""
        return self.preset.presets()

    @cached_property
    def reference(self) -> dict[str, str]:
        """By claim, the verdict of the reference results that the package comes with; empty where there are none."""
        text = resources.files(self.package).joinpath(REFERENCE)
        return dict(json.loads(text.read_text())) if text.is_file() else {}

    @property
    def versions(self) -> dict[str, dict[str, int]]:
        """By study, declared versions of the code that measures it."""
        return {name: study.versions for name, study in self.studies.items()}

    def preset_named(self, name: str) -> Preset:
        """A preset by its name."""
        if name not in self.presets:
            raise InvalidValue("preset", name, f"one of {listed(self.presets)}")
        return self.presets[name]

    def figure_named(self, name: str) -> FigureSpec:
        """A figure by name or number: `fig4`, `4`, `Fig4`."""
        if full_name(name) not in self.figures:
            raise InvalidValue("figure", name, f"one of {listed(self.figures)}")
        return self.figures[full_name(name)]

    @property
    def choices(self) -> str:
        """What can be re-run, in words."""
        numbered = [name for name, spec in self.figures.items() if spec.numbered]
        ranges = [f"{names[0]} … {names[-1]}" for names in (numbered, list(self.claims)) if names]
        others = dict.fromkeys([*self.studies, *(name for name in self.figures if name not in numbered)])
        return ", ".join(["all", *ranges, listed(others)])

    def selected(self, words: Iterable[str]) -> list[Study[Any]]:
        """The studies that some figures, claims or studies need, in the report's order."""
        names: list[str] = []
        for word in words:
            name = full_name(word)
            if name == "all":
                names += self.studies
            elif name in self.studies:
                names.append(name)
            elif name in self.figures:
                names += self.figures[name].studies
            elif word.upper() in self.claims:
                names += (*self.claims[word.upper()].studies, *self.claims[word.upper()].beside)
            else:
                raise InvalidValue("what", word, f"any of {self.choices}")
        return [study for name, study in self.studies.items() if name in names]


def _optional(module: str, name: str, default: Any) -> Any:
    """What a module defines, if there is one and it does."""
    return default if find_spec(module) is None else getattr(import_module(module), name, default)


def _number(record: Claim | FigureSpec) -> int:
    """The number that a name ends with; 0 without one, so that such names stay in their order."""
    digits = re.search(r"\d+$", record.name)
    return int(digits[0]) if digits else 0


def _by_name(kind: str, records: Sequence[Any]) -> dict[str, Any]:
    """Records by name, each of which may be there once."""
    named = {record.name: record for record in records}
    if len(named) < len(records):
        twice = next(name for name in named if [record.name for record in records].count(name) > 1)
        raise InvalidValue(kind, twice, "a name that is not taken yet")
    return named


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
        spec, datasets = self._figure(figure)
        return spec.caption(*datasets)

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
        spec, datasets = self._figure(figure)
        return spec.draw(*datasets)

    def _figure(self, figure: FigureSpec | str) -> tuple[FigureSpec, list[xarray.Dataset]]:
        """A figure with the Datasets that it is drawn from."""
        spec = self.paper.figure_named(figure) if isinstance(figure, str) else figure
        if missing := [study for study in spec.studies if study not in self.studies]:
            raise InvalidValue(
                "figure", spec.name, f"one of {listed(self.figures)} (results of {listed(missing)} are missing)"
            )
        return spec, [self.results.dataset(study) for study in spec.studies]

    @property
    def preset(self) -> dict[str, Any]:
        """The preset of the folder."""
        return dict(self.results.provenance.get("preset") or {})
