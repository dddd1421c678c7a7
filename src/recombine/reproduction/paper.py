"""A record that describes a paper, and the verdicts and figures computed from a results folder."""

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
from recombine.reproduction.figures import FigureSpec, Section, full_name
from recombine.reproduction.live_decoders import DecoderChoice, TrainingPanel
from recombine.reproduction.preset import Preset, assembled
from recombine.reproduction.results import EDITION, Results
from recombine.reproduction.study import Study

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class Paper:
    """A paper that can be reproduced."""

    name: str
    package: str
    """Name of its Python package; empty for a study of one's own in a file."""
    title: str
    source: str
    """Where it was published."""
    question: str
    """Its question, in a few words."""
    preset: type[Preset]
    """Preset class with the settings of all its studies; the defaults are those of the paper."""
    studies: Mapping[str, Study[Any]]
    """Studies by name, in the order of the report."""
    claims: Mapping[str, Claim]
    """Claims by name, in numerical order."""
    figures: Mapping[str, FigureSpec]
    """Figures by name: the paper's in numerical order, then additional ones."""
    sections: tuple[Section, ...] = ()
    """Sections of the report."""
    explorer: DecoderChoice | None = None
    """The trained decoders to show in the report's explorer."""
    training_panel: TrainingPanel | None = None
    """A small decoder that the report trains live."""
    write_markers: Callable[[Results, Sequence[Judgement], Path], None] | None = None
    """Writes `marker_auroc.json`: how well each metric separates composing from failing networks, for `diagnose`."""

    @classmethod
    def assemble(cls, package: str, questions: Sequence[str], unseen: str = "", **about: Any) -> Paper:
        """Return the paper defined by a package with one to three modules per question, in the report's order.

        For the question `size`, `size.py` defines `STUDY`. `CLAIMS` and `FIGURES` are defined there too, or in
        `size_claims.py` and `size_figure.py`. `sections.py` with `SECTIONS` and `explorer.py` with `EXPLORER` and
        `TRAINING_PANEL` are optional. Criteria say which seeds are `unseen`. `about` contains the remaining fields
        (title, source, question and so on).
        """
        studies: list[Study[Any]] = [import_module(f"{package}.{name}").STUDY for name in questions]
        modules = [f"{package}.{name}{part}" for name in questions for part in ("", "_claims", "_figure")]
        claims = [claim.judged_on(unseen) for module in modules for claim in _optional(module, "CLAIMS", ())]
        figures = [spec for module in modules for spec in _optional(module, "FIGURES", ())]
        return cls.of(
            package.rpartition(".")[2], studies, claims, figures, package=package,
            sections=tuple(_optional(f"{package}.sections", "SECTIONS", ())),
            explorer=_optional(f"{package}.explorer", "EXPLORER", None),
            training_panel=_optional(f"{package}.explorer", "TRAINING_PANEL", None),
            **about,
        )  # fmt: skip

    @classmethod
    def of(
        cls, name: str, studies: Sequence[Study[Any]], claims: Sequence[Claim] = (),
        figures: Sequence[FigureSpec] = (), *, package: str = "", **about: Any,
    ) -> Paper:  # fmt: skip
        """Return the paper with these studies, claims and figures; `about` contains the remaining fields."""
        return cls(
            name=name,
            package=package,
            preset=assembled((study.settings for study in studies), package or __name__),
            studies=_by_name("study", studies),
            claims=_by_name("claim", sorted(claims, key=_number)),
            figures=_by_name("figure", sorted(figures, key=lambda own: (not own.numbered, _number(own)))),
            **about,
        )

    @cached_property
    def presets(self) -> dict[str, Preset]:
        """All presets by name; the last one has the paper's settings."""
        return self.preset.presets()

    @cached_property
    def reference(self) -> dict[str, str]:
        """Verdicts of the reference results (`recombine report --reference`) by claim; empty if there are none."""
        return self._packaged("reference.json")

    @cached_property
    def editions(self) -> dict[str, dict[str, str]]:
        """Claims whose criteria changed in this edition: the verdict `before`, and `why` they changed."""
        return self._packaged("editions.json")

    def _packaged(self, name: str) -> dict[str, Any]:
        text = resources.files(self.package).joinpath(name) if self.package else None
        return dict(json.loads(text.read_text())) if text is not None and text.is_file() else {}

    @property
    def versions(self) -> dict[str, dict[str, int]]:
        """Declared versions of the measuring code, by study."""
        return {name: study.versions for name, study in self.studies.items()}

    def preset_named(self, name: str) -> Preset:
        """Return a preset by name."""
        if name not in self.presets:
            raise InvalidValue("preset", name, f"one of {listed(self.presets)}")
        return self.presets[name]

    def figure_named(self, name: str) -> FigureSpec:
        """Return a figure by name or number: `fig4`, `4`, `Fig4`."""
        if full_name(name) not in self.figures:
            raise InvalidValue("figure", name, f"one of {listed(self.figures)}")
        return self.figures[full_name(name)]

    @property
    def choices(self) -> str:
        """Everything that can be reproduced, as text for help and error messages."""
        numbered = [name for name, spec in self.figures.items() if spec.numbered]
        ranges = [f"{names[0]} … {names[-1]}" for names in (numbered, list(self.claims)) if names]
        others = dict.fromkeys([*self.studies, *(name for name in self.figures if name not in numbered)])
        return ", ".join(["all", *ranges, listed(others)])

    def selected(self, words: Iterable[str]) -> list[Study[Any]]:
        """Return the studies required for the named figures, claims or studies, in the order of the report."""
        needed = {"all": tuple(self.studies)}
        needed |= {claim.name.lower(): (*claim.studies, *claim.beside) for claim in self.claims.values()}
        needed |= {name: spec.studies for name, spec in self.figures.items()}
        needed |= {name: (name,) for name in self.studies}
        names: list[str] = []
        for word in words:
            if full_name(word) not in needed:
                raise InvalidValue("what", word, f"any of {self.choices}")
            names += needed[full_name(word)]
        return [study for name, study in self.studies.items() if name in names]


def _optional(module: str, name: str, default: Any) -> Any:
    """Return an attribute of a module, or the default if there is no such module or attribute."""
    return default if find_spec(module) is None else getattr(import_module(module), name, default)


def _number(record: Claim | FigureSpec) -> int:
    """Return the number at the end of a name; 0 if there is none."""
    digits = re.search(r"\d+$", record.name)
    return int(digits[0]) if digits else 0


def _by_name(kind: str, records: Sequence[Any]) -> dict[str, Any]:
    """Index records by name; names must be unique."""
    named: dict[str, Any] = {}
    for record in records:
        if record.name in named:
            raise InvalidValue(kind, record.name, "a name that is not taken yet")
        named[record.name] = record
    return named


class Findings:
    """A paper's verdicts and figures, computed from the Datasets in one folder.

    Parameters
    ----------
    paper
        The paper reproduced in the folder.
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
        """Studies whose Datasets were measured by the current version of their code, in the order of the report."""
        return [name for name, version in self._versions.items() if version == self.paper.studies[name].version]

    @cached_property
    def outdated(self) -> list[str]:
        """Studies whose Datasets were measured by another version of their code, so are neither judged nor drawn."""
        return [name for name in self._versions if name not in self.studies]

    @cached_property
    def _versions(self) -> dict[str, int]:
        present = set(self.results.studies)
        return {n: self.results.attributes(n).get(EDITION, 1) for n in self.paper.studies if n in present}

    @cached_property
    def judgements(self) -> list[Judgement]:
        """The verdicts, in the order of the claims."""
        data = {name: self.results.dataset(name) for name in self.studies}
        judgements = judge(self.paper.claims.values(), data, self.results.registered, self.paper.versions)
        return [replace(own, reference=self.paper.reference.get(own.claim, "")) for own in judgements]

    @cached_property
    def figures(self) -> dict[str, FigureSpec]:
        """The figures whose Datasets are all present."""
        return {name: spec for name, spec in self.paper.figures.items() if set(spec.studies) <= set(self.studies)}

    def caption(self, figure: FigureSpec | str) -> str:
        """Return a figure's caption with numbers from the data; see `draw` for `figure`."""
        spec, datasets = self._figure(figure)
        return spec.caption(*datasets)

    def table(self, figure: FigureSpec | str) -> list[list[str]]:
        """Return the rows of a figure's table, headings first; empty if it has none. See `draw` for `figure`."""
        spec, datasets = self._figure(figure)
        return [] if spec.table is None else spec.table(*datasets)

    def draw(self, figure: FigureSpec | str) -> Any:
        """Draw a figure from the Datasets.

        Parameters
        ----------
        figure
            A figure, or its name or number (`fig6`, `6`).

        Returns
        -------
        matplotlib.figure.Figure
            A pyplot figure, which notebooks display.
        """
        spec, datasets = self._figure(figure)
        return spec.draw(*datasets)

    def _figure(self, figure: FigureSpec | str) -> tuple[FigureSpec, list[xarray.Dataset]]:
        """Return a figure with the Datasets used to draw it."""
        spec = self.paper.figure_named(figure) if isinstance(figure, str) else figure
        if missing := [study for study in spec.studies if study not in self.studies]:
            allowed = f"one of {listed(self.figures)} (results of {listed(missing)} are missing)"
            raise InvalidValue("figure", spec.name, allowed)
        return spec, [self.results.dataset(study) for study in spec.studies]

    @property
    def preset(self) -> dict[str, Any]:
        """The preset used in the folder."""
        return dict(self.results.provenance.get("preset") or {})
