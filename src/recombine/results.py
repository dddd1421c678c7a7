"""A folder of results: one Dataset a study, what was run to get it, and the verdicts that follow.

Nothing here trains. Verdicts are computed from the Datasets whenever they are asked for; a Dataset carries a digest of
the specs it was measured on and of the code that measured it, so that it is served only for the same question.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.claims import CLAIMS, Judgement
from recombine.errors import InvalidValue, listed
from recombine.store.files import explained, write
from recombine.studies import STUDIES

if TYPE_CHECKING:
    import xarray

DATA = "data"
PROVENANCE = "provenance.json"
RUNS = "runs.json"
SOURCE = "measured_by"
"""Attribute of a Dataset that says what it was measured on and by."""
COMPRESSED = {"zlib": True, "complevel": 6, "shuffle": True}


@cache
def source_digest() -> str:
    """Digest of the code that measures: metrics and studies."""
    digest = hashlib.sha256()
    for room in ("metrics", "studies", "tasks", "decoders"):
        for path in sorted(files("recombine").joinpath(room).iterdir(), key=lambda path: path.name):
            if path.name.endswith(".py"):
                digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def question_digest(study: str, specs: Iterable[str]) -> str:
    """Digest of a study's runs and of the code that measures them."""
    text = json.dumps([study, sorted(specs), source_digest()])
    return hashlib.sha256(text.encode()).hexdigest()[:20]


class Results:
    """Datasets and provenance in a folder."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._loaded: dict[str, xarray.Dataset] = {}

    @classmethod
    def existing(cls, path: Path | str) -> Results:
        """A folder that holds results already."""
        results = cls(path)
        if not results.studies:
            raise InvalidValue("from", str(path), "a folder written by 'recombine reproduce'")
        return results

    @property
    def studies(self) -> list[str]:
        """Studies with a Dataset, in the report's order."""
        return [name for name in STUDIES if (self.path / DATA / f"{name}.nc").exists()]

    def dataset(self, study: str) -> xarray.Dataset:
        """A study's Dataset."""
        import xarray

        if study not in self._loaded:
            path = self.path / DATA / f"{study}.nc"
            if not path.exists():
                raise InvalidValue("study", study, f"one that was run: {listed(self.studies)}")
            try:
                self._loaded[study] = xarray.load_dataset(path, engine="h5netcdf")
            except (OSError, ValueError, KeyError) as error:
                reason = " ".join(str(error).split())[:80]
                raise InvalidValue("from", str(path), f"a whole file of results ({reason})") from None
        return self._loaded[study]

    def save(self, study: str, dataset: xarray.Dataset, digest: str) -> None:
        """Keep a study's Dataset, all at once."""
        folder = self.path / DATA
        encoding = {
            name: dict(COMPRESSED) for name, v in dataset.data_vars.items() if v.ndim and v.dtype.kind in "fiub"
        }
        with explained(folder, "out"):
            folder.mkdir(parents=True, exist_ok=True)
            hidden = folder / f".{study}.{os.getpid()}.nc"
            dataset.assign_attrs({SOURCE: digest}).to_netcdf(hidden, engine="h5netcdf", encoding=encoding)
            os.replace(hidden, folder / f"{study}.nc")
        self._loaded.pop(study, None)

    def holds(self, study: str, digest: str) -> bool:
        """Whether the study's Dataset is there and answers exactly this question."""
        if study not in self.studies:
            return False
        try:
            return self.dataset(study).attrs.get(SOURCE) == digest
        except InvalidValue:
            return False

    def judgements(self) -> list[Judgement]:
        """The verdicts that the Datasets give, by claim number."""
        found = {j.claim: j for name in self.studies for j in STUDIES[name].judge(self.dataset(name))}
        return [found[claim] for claim in CLAIMS if claim in found]

    @property
    def provenance(self) -> dict[str, Any]:
        """Preset, versions, device, commit, runs and times; empty where none was written."""
        path = self.path / PROVENANCE
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def note_runs(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Add to the runs behind these results, each with the seconds its training took; return all of them."""
        path = self.path / RUNS
        known = dict(json.loads(path.read_text())) if path.exists() else {}
        merged = dict(sorted({**known, **{key: round(value, 2) for key, value in seconds.items()}}.items()))
        write(path, json.dumps(merged, indent=0).encode(), "out")
        return merged

    def note(self, **facts: Any) -> None:
        """Add to the provenance."""
        with explained(self.path, "out"):
            self.path.mkdir(parents=True, exist_ok=True)
        write(self.path / PROVENANCE, json.dumps({**self.provenance, **facts}, indent=1).encode(), "out")
