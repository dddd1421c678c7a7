"""A results folder with one Dataset per study and their provenance.

Each Dataset stores its provenance and a fingerprint of everything it depends on (`reproduce`), and is reused only if
nothing has changed. All files are checked against a manifest when they are read (`recombine.manifest`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.errors import InvalidValue, listed, reason_of
from recombine.files import is_own_folder, one_line_errors, parsed_json
from recombine.manifest import LIST, Differs, Manifest
from recombine.netcdf import attributes_of, decoded, encoded
from recombine.reproduction.criteria import record_digest
from recombine.store import Run

if TYPE_CHECKING:
    import xarray

DATA, SUFFIX = "data", ".nc"
PROVENANCE = "provenance.json"
RUNS = "runs.json"
CRITERIA = "criteria.json"  # criteria registered before data collection
EXPLORER = "explorer.safetensors"  # decoders for the report's explorer (`explorer`)
NOTES = (PROVENANCE, RUNS, CRITERIA, EXPLORER)  # files that are read back, other than Datasets


# Attributes of Datasets
SOURCE, SETTINGS, READS, EDITION = "measured_by", "settings", "settings_read", "study_version"
"""Fingerprint; preset, and names of the fields used by the study, both as JSON; version of the study."""


class Results:
    """Datasets and provenance in a folder.

    Parameters
    ----------
    path
        The folder.

    Examples
    --------
    >>> import recombine as rc
    >>> from tempfile import TemporaryDirectory
    >>> import xarray
    >>> with TemporaryDirectory() as folder:
    ...     results = rc.Results(folder)
    ...     results.save("depth", xarray.Dataset({"score": ("seed", [0.5, 0.7])}), "digest")
    ...     studies, mean = results.studies, float(results.dataset("depth")["score"].mean())
    >>> studies, mean
    (['depth'], 0.6)
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.digests = Manifest(self.path)
        self._loaded: dict[str, xarray.Dataset] = {}
        self._attributes: dict[str, dict[str, Any]] = {}

    @classmethod
    def existing(cls, path: Path | str) -> Results:
        """Return a folder that must already contain results."""
        results = cls(path)
        if not (results.studies and is_own_folder(results.path, "from")):
            raise InvalidValue("from", str(path), "a folder written by 'recombine reproduce'")
        return results

    @property
    def studies(self) -> list[str]:
        """Names of the studies that have a Dataset, including Datasets whose files are missing."""
        names = set(self.digests.required())
        with one_line_errors(self.path / DATA, "from"), suppress(FileNotFoundError, NotADirectoryError):
            names |= {f"{DATA}/{name}" for name in os.listdir(self.path / DATA)}
        return sorted(Path(name).stem for name in names if _is_dataset(name))

    def _read(self, name: str) -> bytes | None:
        """Return a file's content, which must be intact; None if the file was never written."""
        try:
            return self.digests.read(name)
        except Differs as error:
            raise InvalidValue("from", str(self.path), f"a folder whose files are intact ({name}: {error})") from None

    def damaged(self) -> dict[str, str]:
        """Return a description of the damage for each damaged file among those that are read back."""
        read_back = [n for n in self.digests.names() if n in (*NOTES, LIST) or _is_dataset(n)]
        problems = {name: self.digests.problem(name) for name in read_back}
        return {name: problem for name, problem in problems.items() if problem}

    @property
    def criteria(self) -> dict[str, dict[str, Any]] | None:
        """Registered records by claim, with date and commit; None if unknown or in an older format."""
        known = dict(parsed_json(self._read(CRITERIA) or b"{}"))
        return known if known and all("records" in own for own in known.values()) else None

    @property
    def registered(self) -> set[str] | None:
        """Digests of the registered records; None if unknown."""
        known = self.criteria
        return None if known is None else {record_digest(r) for own in known.values() for r in own["records"]}

    @property
    def registration(self) -> dict[str, str]:
        """Dates and commits at which the criteria were registered, and the digest of the criteria file."""
        known = self.criteria or {}
        facts = {f"criteria_{name}": sorted({str(own[name]) for own in known.values()}) for name in ("date", "commit")}
        digest = {"criteria_digest": hashlib.sha256(self._read(CRITERIA) or b"").hexdigest()} if known else {}
        return {**{name: ", ".join(values) for name, values in facts.items() if values}, **digest}

    def register(self, criteria: Mapping[str, Mapping[str, Any]]) -> None:
        """Write criteria to the folder before data are collected."""
        self.digests.replace({CRITERIA: json.dumps(criteria, indent=1, sort_keys=True, ensure_ascii=False).encode()})

    @property
    def decoders(self) -> bytes | None:
        """The decoders for the report's explorer; None if the folder has none."""
        return self._read(EXPLORER)

    def dataset(self, study: str) -> xarray.Dataset:
        """Return a study's Dataset."""
        if study not in self._loaded:
            content = self.content(study)
            try:
                self._loaded[study] = decoded(content)
            except Exception as error:  # HDF5 raises errors of many types on damaged files
                allowed = f"a folder of readable files ({_file(study)}: {reason_of(error)})"
                raise InvalidValue("from", str(self.path), allowed) from None
        return self._loaded[study]

    def attributes(self, study: str) -> dict[str, Any]:
        """Return the attributes of a study's Dataset without decoding its variables."""
        if study not in self._attributes:
            content = self.content(study)
            try:
                self._attributes[study] = attributes_of(content)
            except Exception:  # HDF5 raises errors of many types on damaged files
                return dict(self.dataset(study).attrs)  # says what is wrong
        return self._attributes[study]

    def content(self, study: str) -> bytes:
        """Return a study's Dataset as netCDF."""
        content = self._read(_file(study))
        if content is None:
            allowed = f"one of {listed(self.studies)} ('recombine reproduce {study}' adds it)"
            raise InvalidValue("study", study, allowed)
        return content

    def save(self, study: str, dataset: xarray.Dataset, fingerprint: str) -> None:
        """Write a study's Dataset."""
        self.digests.replace({_file(study): encoded(dataset.assign_attrs({SOURCE: fingerprint}))})
        self._forget(study)

    def holds(self, study: str, fingerprint: str) -> bool:
        """Return whether the study's Dataset is intact and has this fingerprint."""
        with suppress(InvalidValue):  # missing or damaged
            return bool(self.attributes(study).get(SOURCE) == fingerprint)
        return False

    def settings(self, study: str) -> dict[str, Any]:
        """Return the preset of a study's Dataset; empty if unknown."""
        return dict(parsed_json(self.attributes(study).get(SETTINGS, "{}")))

    def settings_read(self, study: str) -> list[str]:
        """Return the preset fields that a study's Dataset depends on."""
        return list(parsed_json(self.attributes(study).get(READS, "[]")) or self.settings(study))

    @property
    def _readable(self) -> dict[str, dict[str, Any]]:
        """The attributes of the intact Datasets, by study."""
        readable = {}
        for study in self.studies:
            with suppress(InvalidValue):
                readable[study] = self.attributes(study)
        return readable

    def remove(self, studies: Iterable[str]) -> None:
        """Delete Datasets and the records of runs not used by any other Dataset."""
        if not (removed := list(studies)):
            return
        self.digests.replace({_file(study): None for study in removed})
        for study in removed:
            self._forget(study)
        self.note_runs()

    def _forget(self, study: str) -> None:
        self._loaded.pop(study, None)
        self._attributes.pop(study, None)

    @property
    def provenance(self) -> dict[str, Any]:
        """The Datasets' preset, number of runs, times, versions, device and commit."""
        facts, readable = self.noted, self._readable
        preset: dict[str, Any] = {}
        for study in readable:  # where presets differ, each field is taken from the Datasets that use it
            fields = self.settings(study)
            read = {name: fields[name] for name in self.settings_read(study) if name in fields}
            preset = {**fields, **preset, **read}
        if preset:
            facts["preset"] = preset
        if runs := self._runs():
            facts["runs"] = len(runs)
            facts["diverged"] = sum(run["status"] != "done" for run in runs.values())
            facts["training_seconds"] = round(math.fsum(run["seconds"] for run in runs.values()), 1)
        attributes = list(readable.values())
        if attributes:
            seconds = (float(own.get("measuring_seconds", 0)) for own in attributes)
            facts["measuring_seconds"] = round(math.fsum(seconds), 1)
        for name in ("recombine", "commit", "torch", "python", "machine", "device", "precision", "kernels"):
            if values := sorted({str(own[name]) for own in attributes if name in own}):
                facts[name] = ", ".join(values)
        return facts

    def costs(self) -> dict[str, dict[str, Any]]:
        """Return networks, seeds, training and measuring seconds by study, which split the time of shared networks."""
        runs = self._runs().values()
        costs = {}
        for study, attributes in self._readable.items():
            own = [run for run in runs if study in run["studies"]]
            training = math.fsum(run["seconds"] / len(run["studies"]) for run in own)
            measuring = float(attributes.get("measuring_seconds", 0))
            settings = self.settings(study)
            first = int(settings.get("first_seed", 0))
            number = self.dataset(study).sizes.get("seed", settings.get("seeds", 0))
            seeds = f"{first}–{first + number - 1}"
            costs[study] = {"networks": len(own), "seeds": seeds, "training": training, "measuring": measuring}
        return costs

    def note_runs(self, study: str = "", runs: Sequence[Run] = ()) -> None:
        """Record the runs used by a study's Dataset, and drop those no longer used by any Dataset."""

        def changed() -> dict[str, bytes]:  # called while no other process is writing
            known, here = self._runs(), set(self.studies)
            for entry in known.values():
                entry["studies"] = [name for name in entry["studies"] if name != study]
            for run in runs:
                entry = known.setdefault(run.key, {"studies": []})
                taken = run.result["provenance"]  # the time is split between members trained together
                seconds = float(taken["seconds"]) / max(1, int(taken["members_together"]))
                entry |= {"seconds": round(seconds, 2), "status": run.status}
                entry["studies"] = sorted({*entry["studies"], study})
            kept = {key: own for key, own in known.items() if here & set(own["studies"])}
            lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(kept[key])}" for key in sorted(kept))
            return {RUNS: f"{{\n{lines}\n}}\n".encode()}

        self.digests.update(changed)

    def note(self, **facts: Any) -> None:
        """Write the provenance, including facts that the Datasets do not contain."""
        self.digests.update(lambda: {PROVENANCE: json.dumps({**self.provenance, **facts}, indent=1).encode()})

    @property
    def noted(self) -> dict[str, Any]:
        """The provenance as last written."""
        return dict(parsed_json(self._read(PROVENANCE) or b"{}"))

    def _runs(self) -> dict[str, dict[str, Any]]:
        """Return the seconds, status and studies of recorded runs by key; skip runs in the oldest format."""
        return {key: own for key, own in parsed_json(self._read(RUNS) or b"{}").items() if isinstance(own, dict)}


def _file(study: str) -> str:
    """Return the path of a study's Dataset relative to the folder."""
    return f"{DATA}/{study}{SUFFIX}"


def _is_dataset(name: str) -> bool:
    """Return whether a path relative to the folder is that of a study's Dataset."""
    folder, _, file = name.rpartition("/")
    return folder == DATA and file.endswith(SUFFIX) and not file.startswith(".")
