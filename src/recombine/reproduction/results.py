"""A folder of results: one Dataset per study, and what was run to get it.

A Dataset says itself where it came from, with a fingerprint of all that it depends on (`reproduce`), so that it is
served only for the same question. Whatever is read back has a digest (`recombine.manifest`) and is read only if it is
as it was written.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.errors import InvalidValue, listed
from recombine.files import one_line_errors, parsed_json
from recombine.manifest import LIST, Differs, Manifest
from recombine.reproduction.criteria import record_digest
from recombine.store import Run

if TYPE_CHECKING:
    import h5py
    import xarray

DATA, SUFFIX = "data", ".nc"
PROVENANCE = "provenance.json"
RUNS = "runs.json"
CRITERIA = "criteria.json"
"""The criteria under which the data of a folder were collected."""
EXPLORER = "explorer.safetensors"
"""Decoders for the report's explorer (`explorer`)."""
NOTES = (PROVENANCE, RUNS, CRITERIA, EXPLORER)
"""What is read back beside Datasets."""
SOURCE = "measured_by"
"""Attribute of a Dataset with its fingerprint."""
SETTINGS = "settings"
"""Attribute of a Dataset with its whole preset, as JSON."""
EDITION = "study_version"
"""Attribute of a Dataset with the version of its study; 1 where it is missing."""
READS = "settings_read"
"""Attribute of a Dataset with the names of the fields of that preset that its study reads, as JSON."""
ORIGIN = ("recombine", "commit", "torch", "python", "machine", "device", "precision", "kernels")
"""Attributes of a Dataset that say where it was made."""
COMPRESSED = {"zlib": True, "complevel": 6, "shuffle": True}
HIDDEN = {
    "CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_NCProperties",
}  # fmt: skip
"""Attributes that belong to the format."""
DIMENSION_ALONE = b"This is a netCDF dimension but not a netCDF variable"
"""How the name begins of what is there only because a dimension needs it."""


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

    @classmethod
    def existing(cls, path: Path | str) -> Results:
        """A folder that holds results already."""
        results = cls(path)
        if not results.studies:
            raise InvalidValue("from", str(path), "a folder written by 'recombine reproduce'")
        return results

    @property
    def studies(self) -> list[str]:
        """Studies with a Dataset, by name; one that was lost is among them."""
        names = set(self.digests.required())
        with one_line_errors(self.path / DATA, "from"), suppress(FileNotFoundError, NotADirectoryError):
            names |= {f"{DATA}/{name}" for name in os.listdir(self.path / DATA)}
        return sorted(Path(name).stem for name in names if _is_dataset(name))

    def _read(self, name: str) -> bytes | None:
        """A file as it was written; none where there never was one."""
        if not self.digests.is_present(name) and name not in self.digests.required():
            return None
        try:
            return self.digests.read(name)
        except Differs as error:
            raise InvalidValue("from", str(self.path), f"a folder whose files are intact ({name}: {error})") from None

    def damaged(self) -> dict[str, str]:
        """Files that are read back and are not as they were written, and how."""
        read_back = [n for n in self.digests.names() if n in (*NOTES, LIST) or _is_dataset(n)]
        problems = {name: self.digests.problem(name) for name in read_back}
        return {name: problem for name, problem in problems.items() if problem}

    @property
    def criteria(self) -> dict[str, dict[str, Any]] | None:
        """By claim, the records that its data were collected under, with the date and commit of their registration.

        None where that is not known. What was registered by digests of source text cannot be compared any more.
        """
        content = self._read(CRITERIA)
        known = None if content is None else dict(parsed_json(content))
        return known if known and all("records" in own for own in known.values()) else None

    @property
    def registered(self) -> set[str] | None:
        """Digests of the criteria that data were collected under; none if not known."""
        known = self.criteria
        return None if known is None else {record_digest(r) for own in known.values() for r in own["records"]}

    @property
    def registration(self) -> dict[str, str]:
        """When the criteria of the folder were registered, at which commits, and the digest of their file."""
        known = self.criteria or {}
        facts = {f"criteria_{name}": sorted({str(own[name]) for own in known.values()}) for name in ("date", "commit")}
        digest = {"criteria_digest": hashlib.sha256(self._read(CRITERIA) or b"").hexdigest()} if known else {}
        return {**{name: ", ".join(values) for name, values in facts.items() if values}, **digest}

    def register(self, criteria: Mapping[str, Mapping[str, Any]]) -> None:
        """Write down criteria, before data are collected."""
        self.digests.replace({CRITERIA: json.dumps(criteria, indent=1, sort_keys=True, ensure_ascii=False).encode()})

    @property
    def decoders(self) -> bytes | None:
        """The decoders of the report's explorer; none where the folder keeps none."""
        return self._read(EXPLORER)

    def dataset(self, study: str) -> xarray.Dataset:
        """A study's Dataset."""
        if study not in self._loaded:
            content = self.content(study)
            try:
                self._loaded[study] = decoded(content)
            except Exception as error:  # HDF5 raises whatever it stumbles upon
                reason = " ".join(str(error).split())[:80]
                raise InvalidValue(
                    "from", str(self.path), f"a folder of readable files ({_file(study)}: {reason})"
                ) from None
        return self._loaded[study]

    def content(self, study: str) -> bytes:
        """A study's Dataset as netCDF."""
        content = self._read(_file(study))
        if content is None:
            allowed = f"one of those that were run: {listed(self.studies)}; 'recombine reproduce {study}' runs it"
            raise InvalidValue("study", study, allowed)
        return content

    def save(self, study: str, dataset: xarray.Dataset, fingerprint: str) -> None:
        """Keep a study's Dataset, all at once."""
        self.digests.replace({_file(study): encoded(dataset.assign_attrs({SOURCE: fingerprint}))})
        self._loaded.pop(study, None)

    def holds(self, study: str, fingerprint: str) -> bool:
        """Whether the study's Dataset is there and depends on exactly what this is the fingerprint of."""
        with suppress(InvalidValue):  # it is not there, or damaged
            return self.dataset(study).attrs.get(SOURCE) == fingerprint
        return False

    def settings(self, study: str) -> dict[str, Any]:
        """The whole preset of a study's Dataset; empty where it does not carry it."""
        return dict(parsed_json(self.dataset(study).attrs.get(SETTINGS, "{}")))

    def settings_read(self, study: str) -> list[str]:
        """Names of the fields of its preset that a study's Dataset depends on."""
        return list(parsed_json(self.dataset(study).attrs.get(READS, "[]")) or self.settings(study))

    @property
    def _readable(self) -> dict[str, xarray.Dataset]:
        """The Datasets that can be read, by study."""
        datasets = {}
        for study in self.studies:
            with suppress(InvalidValue):
                datasets[study] = self.dataset(study)
        return datasets

    def remove(self, studies: Iterable[str]) -> None:
        """Take Datasets out of the folder, and what is noted of the runs that only they rest on."""
        if not (removed := list(studies)):
            return
        self.digests.replace({_file(study): None for study in removed})
        for study in removed:
            self._loaded.pop(study, None)
        self.note_runs()

    @property
    def provenance(self) -> dict[str, Any]:
        """Preset, runs and times, versions, device and commit, of the Datasets that are here."""
        facts, datasets = self.noted, self._readable
        preset: dict[str, Any] = {}
        for study in datasets:  # where presets differ, each field as the Datasets have it that read it
            fields = self.settings(study)
            read = {name: fields[name] for name in self.settings_read(study) if name in fields}
            preset = {**fields, **preset, **read}
        if preset:
            facts["preset"] = preset
        if runs := self._runs():
            facts["runs"] = len(runs)
            facts["diverged"] = sum(run["status"] != "done" for run in runs.values())
            facts["training_seconds"] = round(math.fsum(run["seconds"] for run in runs.values()), 1)
        attributes = [own.attrs for own in datasets.values()]
        if attributes:
            seconds = (float(own.get("measuring_seconds", 0)) for own in attributes)
            facts["measuring_seconds"] = round(math.fsum(seconds), 1)
        for name in ORIGIN:
            if values := sorted({str(own[name]) for own in attributes if name in own}):
                facts[name] = ", ".join(values)
        return facts

    def costs(self) -> dict[str, dict[str, float]]:
        """By study, its networks and the seconds of training and measuring; studies share those of a common network."""
        runs = self._runs().values()
        costs = {}
        for study, dataset in self._readable.items():
            own = [run for run in runs if study in run["studies"]]
            training = math.fsum(run["seconds"] / len(run["studies"]) for run in own)
            measuring = float(dataset.attrs.get("measuring_seconds", 0))
            costs[study] = {"networks": len(own), "training": training, "measuring": measuring}
        return costs

    def note_runs(self, study: str = "", runs: Sequence[Run] = ()) -> None:
        """Note the runs behind a study's Dataset, and forget those that no Dataset rests on any more."""

        def changed() -> dict[str, bytes]:  # while no other command writes
            known, here = self._runs(), set(self.studies)
            for entry in known.values():
                entry["studies"] = [name for name in entry["studies"] if name != study]
            for run in runs:
                entry = known.setdefault(run.key, {"studies": []})
                taken = run.result["provenance"]  # the seconds of a program are shared among its members
                seconds = float(taken["seconds"]) / max(1, int(taken["members_together"]))
                entry |= {"seconds": round(seconds, 2), "status": run.status}
                entry["studies"] = sorted({*entry["studies"], study})
            kept = {key: own for key, own in known.items() if here & set(own["studies"])}
            lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(kept[key])}" for key in sorted(kept))
            return {RUNS: f"{{\n{lines}\n}}\n".encode()}

        self.digests.update(changed)

    def note(self, **facts: Any) -> None:
        """Write down what the folder says of itself, and what cannot be read off its Datasets."""
        self.digests.update(lambda: {PROVENANCE: json.dumps({**self.provenance, **facts}, indent=1).encode()})

    @property
    def noted(self) -> dict[str, Any]:
        """What was last written down of the folder."""
        return dict(parsed_json(self._read(PROVENANCE) or b"{}"))

    def _runs(self) -> dict[str, dict[str, Any]]:
        """Noted runs by key: seconds, status and the studies they are for; the first edition noted seconds alone."""
        return {key: own for key, own in parsed_json(self._read(RUNS) or b"{}").items() if isinstance(own, dict)}


def _file(study: str) -> str:
    """A study's Dataset, from the folder on."""
    return f"{DATA}/{study}{SUFFIX}"


def _is_dataset(name: str) -> bool:
    """Whether a file's name, from the folder on, is that of a study's Dataset."""
    folder, _, file = name.rpartition("/")
    return folder == DATA and file.endswith(SUFFIX) and not file.startswith(".")


# -- Datasets as content of netCDF-4 files, in memory: HDF5 itself would not flush a file to the disk. They are read by
# h5py, since xarray looks up each dimension of each variable many times over: a paper's take five times as long by it.


def encoded(dataset: xarray.Dataset) -> bytes:
    """A Dataset as a file's content."""
    variables = dataset.data_vars.items()
    encoding = {name: dict(COMPRESSED) for name, v in variables if v.ndim and v.dtype.kind in "fiub"}
    return bytes(dataset.to_netcdf(engine="h5netcdf", encoding=encoding))


def decoded(content: bytes) -> xarray.Dataset:
    """The Dataset that was written, as `xarray.load_dataset` would give it; raises whatever HDF5 stumbles upon."""
    import h5py
    import xarray

    with h5py.File(io.BytesIO(content), "r") as file:
        nodes = {name: node for name, node in file.items() if isinstance(node, h5py.Dataset)}
        real = {n: own for n, own in nodes.items() if not bytes(own.attrs.get("NAME", b"")).startswith(DIMENSION_ALONE)}
        variables = {name: _variable(file, name, node) for name, node in real.items()}
        raw = xarray.Dataset(variables, attrs=_attributes(file))
    return xarray.decode_cf(raw)


def _variable(file: h5py.File, name: str, node: h5py.Dataset) -> xarray.Variable:
    import h5py
    import xarray

    is_text = h5py.check_string_dtype(node.dtype) is not None
    values = node.asstr()[()] if is_text else node[()]
    if is_text and node.ndim:
        values = values.astype(str)
    dims = [name] * node.ndim  # a variable without a list of dimensions is its own
    if "DIMENSION_LIST" in node.attrs:
        scales = (h5py.h5r.dereference(references[0], file.id) for references in node.attrs["DIMENSION_LIST"])
        dims = [h5py.h5i.get_name(scale).decode().lstrip("/") for scale in scales]
    return xarray.Variable(dims, values, _attributes(node))


def _attributes(node: h5py.File | h5py.Dataset) -> dict[str, Any]:
    """Attributes; one value is no array."""
    found = {name: value for name, value in node.attrs.items() if name not in HIDDEN}
    return {name: value[0] if getattr(value, "shape", None) == (1,) else value for name, value in found.items()}
