"""A folder of results: one Dataset a study, what was run to get it, and the verdicts that follow.

Nothing here trains. Verdicts are computed from the Datasets whenever they are asked for. A Dataset says itself where it
came from: its whole preset, device, versions and commit, and a digest of the runs it was measured on, of the preset and
of the code that measured it, so that it is served only for the same question. What a folder says of itself is put
together from its Datasets and the runs noted for them; only the time that calls took is kept in a file of its own.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.checks import given_path
from recombine.claims import CLAIMS, Judgement
from recombine.errors import InvalidValue, listed
from recombine.files import explained, write
from recombine.store import Run
from recombine.store.run import ARRAYS, MANIFEST, WEIGHTS
from recombine.studies import STUDIES

if TYPE_CHECKING:
    import xarray

DATA = "data"
PROVENANCE = "provenance.json"
RUNS = "runs.json"
SOURCE = "measured_by"
"""Attribute of a Dataset that says what it was measured on and by."""
SETTINGS = "settings"
"""Attribute of a Dataset with its whole preset, as JSON."""
ORIGIN = ("recombine", "commit", "torch", "python", "machine", "device", "precision", "kernels")
"""Attributes of a Dataset that say where it was made."""
MEASURING = ("metrics", "studies", "tasks", "decoders", "encodings.py", "holdouts.py", "factors.py")
"""Code that a Dataset depends on. What trains is left out: its outcome is."""
COMPRESSED = {"zlib": True, "complevel": 6, "shuffle": True}


@cache
def source_digest() -> str:
    """Digest of the code that measures: metrics and studies, and what they read codes, images and regions from."""
    digest = hashlib.sha256()
    for part in MEASURING:
        place = files("recombine").joinpath(part)
        for path in [place] if place.is_file() else sorted(place.iterdir(), key=lambda path: path.name):
            if path.name.endswith(".py"):
                digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def content_digest(run: Run) -> str:
    """What training came to, from the digests that the store keeps: weights, arrays, and whether it diverged."""
    kept = json.loads((run.path / MANIFEST).read_text())["files"]
    return f"{kept[WEIGHTS]} {kept[ARRAYS]} {run.status}"


def question_digest(study: str, runs: Mapping[str, str], settings: str, instruments: Iterable[str] = ()) -> str:
    """Digest of all that a study's Dataset depends on.

    Runs by key with a digest of what each came to, the preset as JSON, optional tools that are installed, and the code.
    """
    text = json.dumps([study, sorted(runs.items()), settings, sorted(instruments), source_digest()])
    return hashlib.sha256(text.encode()).hexdigest()[:20]


class Results:
    """Datasets and provenance in a folder."""

    def __init__(self, path: Path | str) -> None:
        self.path = given_path("results", path)
        self._loaded: dict[str, xarray.Dataset] = {}

    @classmethod
    def existing(cls, path: Path | str) -> Results:
        """A folder that holds results already."""
        results = cls(path)
        if not results.studies:
            raise InvalidValue("from", str(path), "a folder written by 'recombine reproduce'")
        return results

    def make_place(self) -> None:
        """Make the folder and try to write there: better refused now than after an hour of training."""
        with explained(self.path, "out"):
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass

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

    def settings(self, study: str) -> dict[str, Any] | None:
        """The whole preset of a study's Dataset; of one that does not carry it, what the folder noted; else none."""
        text = self.dataset(study).attrs.get(SETTINGS)
        return dict(json.loads(text)) if text else self.noted.get("preset")

    def _attributes(self) -> dict[str, dict[str, Any]]:
        """Attributes of the Datasets that can be read."""
        found = {}
        for study in self.studies:
            with suppress(InvalidValue):
                found[study] = dict(self.dataset(study).attrs)
        return found

    def remove(self, studies: Iterable[str]) -> None:
        """Take Datasets out of the folder."""
        for study in studies:
            with explained(self.path, "out"):
                (self.path / DATA / f"{study}.nc").unlink(missing_ok=True)
            self._loaded.pop(study, None)

    @property
    def provenance(self) -> dict[str, Any]:
        """Preset, runs and times, versions, device and commit, of the Datasets that are here."""
        noted, attributes = self.noted, list(self._attributes().values())
        presets = [json.loads(own[SETTINGS]) for own in attributes if SETTINGS in own]
        found: dict[str, Any] = {"preset": presets[0] if presets else noted.get("preset")}
        if runs := self._runs():
            found["runs"] = len(runs)
            found["diverged"] = sum(run["status"] != "done" for run in runs.values())
            found["training_seconds"] = round(math.fsum(run["seconds"] for run in runs.values()), 1)
        if attributes:
            found["measuring_seconds"] = round(
                math.fsum(float(own.get("measuring_seconds", 0)) for own in attributes), 1
            )
        if "wall_seconds" in noted:
            found["wall_seconds"] = noted["wall_seconds"]
        for name in ORIGIN:
            if values := sorted({str(own[name]) for own in attributes if name in own}):
                found[name] = ", ".join(values)
        return {**{name: value for name, value in found.items() if value is not None}, **_missing(noted, found)}

    def note_runs(self, study: str, runs: Sequence[Run]) -> None:
        """Note the runs behind a study's Dataset, and forget those that no Dataset rests on any more."""
        known = self._runs()
        for entry in known.values():
            entry["studies"] = [name for name in entry["studies"] if name != study]
        for run in runs:
            entry = known.setdefault(run.key, {"studies": []})
            entry |= {"seconds": round(_seconds(run), 2), "status": run.status}
            entry["studies"] = sorted({*entry["studies"], study})
        write(self.path / RUNS, _lines(self._behind(known)).encode(), "out")

    def _behind(self, runs: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """The runs that some Dataset rests on; while one is here that never noted its own, those of unknown use too."""
        here, unknown = set(self.studies), any(SETTINGS not in own for own in self._attributes().values())
        kept = {key: entry for key, entry in runs.items() if here & set(entry["studies"])}
        return kept | {key: entry for key, entry in runs.items() if unknown and not entry["studies"]}

    def note(self, **facts: Any) -> None:
        """Write down what the folder says of itself, and what cannot be read off its Datasets."""
        with explained(self.path, "out"):
            self.path.mkdir(parents=True, exist_ok=True)
        write(self.path / PROVENANCE, json.dumps({**self.provenance, **facts}, indent=1).encode(), "out")

    @property
    def noted(self) -> dict[str, Any]:
        """What was last written down of the folder."""
        path = self.path / PROVENANCE
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def _runs(self) -> dict[str, dict[str, Any]]:
        """Noted runs by key: seconds, status and the studies they are for; a bare number is seconds alone."""
        path = self.path / RUNS
        noted = dict(json.loads(path.read_text())) if path.exists() else {}
        bare = {"status": "done", "studies": []}
        return {
            key: dict(entry) if isinstance(entry, dict) else {"seconds": entry, **bare} for key, entry in noted.items()
        }


def _seconds(run: Run) -> float:
    """What a run took; the seconds of a program are shared among its members."""
    noted = run.result["provenance"]
    return float(noted["seconds"]) / max(1, int(noted["members_together"]))


def _missing(noted: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """What was noted of a folder and cannot be told from its content."""
    return {name: value for name, value in noted.items() if found.get(name) is None}


def _lines(runs: Mapping[str, Any]) -> str:
    """Runs as JSON, a line a run."""
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(runs[key])}" for key in sorted(runs)) + "\n}\n"
