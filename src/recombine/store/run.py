"""A finished run in a store.

A run's folder holds the files listed in `FILES` and a manifest with their digests (`recombine.manifest`). Its name is
the run's key, a digest of the spec and the revision of the training code (`recombine.keys`). Files are checked against
the manifest whenever they are read.
"""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from recombine.errors import StoreError, listed
from recombine.files import one_line_errors, parsed_json, read, require_folder, write
from recombine.keys import stored_key, with_present_names
from recombine.manifest import Differs, checked, manifest_text
from recombine.own_parts import changed_sources
from recombine.store.names import SCORES, unpack

if TYPE_CHECKING:
    from recombine.decoders import StagedDecoder
    from recombine.specs import RunSpec

MANIFEST = "manifest.json"
SPEC, RESULT, WEIGHTS, ARRAYS = "spec.json", "result.json", "weights.safetensors", "arrays.safetensors"
FILES = (SPEC, RESULT, WEIGHTS, ARRAYS)


@dataclass(frozen=True)
class Problem:
    """A problem with a file or folder in a store: damaged, foreign (`stray`) or unreadable."""

    text: str
    kind: Literal["damage", "stray", "unreadable"] = "damage"

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Run:
    """A finished run: spec, scores, weights and arrays, loaded on demand.

    Parameters
    ----------
    key
        Name of the run, a digest of its spec.
    path
        Folder of the run.

    Examples
    --------
    >>> import recombine as rc
    >>> from tempfile import TemporaryDirectory
    >>> spec = rc.RunSpec(task=rc.BumpTask(size=8), decoder="mlp:width=8:depth=1", recipe=rc.Recipe(steps=3))
    >>> with TemporaryDirectory() as store:
    ...     (run,) = rc.train(spec, store)
    ...     status, names, decoder = run.status, sorted(run.scores), run.module()
    >>> status, names[:2], decoder.stage_names
    ('done', ['id_accuracy', 'id_mse'], ('layer1', 'output'))
    """

    key: str
    path: Path

    @cached_property
    def result(self) -> dict[str, Any]:
        """Contains `status`, `scores`, `steps`, `provenance` and, for sampled grids, `points` and `standard_errors`."""
        result = parsed_json(self.content(RESULT))
        with suppress(KeyError, TypeError):
            kinds = isinstance(result["status"], str) and isinstance(result["provenance"], dict)
            if kinds and all(isinstance(result["scores"][name], int | float | None) for name in SCORES):
                return dict(result)
        raise StoreError(f"{str(self.path / RESULT)!r} must be the result of a run")

    @property
    def status(self) -> str:
        """`done`, or `diverged` if the loss became infinite or NaN."""
        return str(self.result["status"])

    @property
    def scores(self) -> dict[str, float]:
        """Errors and accuracies on trained (`id`) and held-out (`ood`) combinations; NaN if there are none."""
        scores = self.result["scores"].items()
        return {name: float("nan") if value is None else float(value) for name, value in scores}

    @property
    def standard_errors(self) -> dict[str, float]:
        """Standard error of each score: 0 if the whole grid was evaluated, NaN if too few points were sampled."""
        errors = self.result.get("standard_errors") or dict.fromkeys(self.result["scores"], 0.0)
        return {name: float("nan") if value is None else float(value) for name, value in errors.items()}

    @property
    def spec_text(self) -> str:
        """The spec and the revision of the training code, as JSON."""
        return self.content(SPEC).decode()

    @property
    def spec_fields(self) -> dict[str, Any]:
        """The spec and the revision as a dictionary, with current field names."""
        return with_present_names(parsed_json(self.spec_text))

    @cached_property
    def spec(self) -> RunSpec:
        """The spec that was trained."""
        from recombine.specs import RunSpec

        return RunSpec.from_json(self.spec_text)

    def weights(self) -> dict[str, Any]:
        """Return the trained parameters as numpy arrays by name."""
        return unpack(self.content(WEIGHTS))

    def arrays(self) -> dict[str, Any]:
        """Return `error`, `hit`, `blank` and `held_out` per grid point, and `history` per epoch, as numpy arrays."""
        return unpack(self.content(ARRAYS))

    def module(self) -> StagedDecoder:
        """Return the trained network."""
        import torch

        changed = changed_sources(self.spec, self.result["provenance"])
        state = {name: torch.from_numpy(array) for name, array in self.weights().items()}
        module = self.spec.module()
        if {name: part.shape for name, part in module.state_dict().items()} != {n: a.shape for n, a in state.items()}:
            cause = f"; the code of {listed(changed)} has changed since" if changed else ""
            raise StoreError(f"run {self.key} must have weights that fit its decoder{cause}")
        if changed:
            text = f"the code of {listed(changed)} has changed since this run was trained, so its outputs may differ"
            warnings.warn(text, stacklevel=2)  # the same text for every run, so that Python shows it once
        module.load_state_dict(state)
        return module.eval()

    def save_pretrained(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the weights, configuration and model card in the layout of the Hugging Face hub; return the folder.

        The folder must be new or empty, or hold another export, whose files are replaced, unless `overwrite` is set.
        """
        from recombine.store.pretrained import hub_files

        path = Path(folder)
        require_folder(path, "folder", overwrite)
        contents = hub_files(self.key, self.spec, self.spec_fields, self.result, self.weights())
        with one_line_errors(path, "folder"):
            path.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            write(path / name, content, "folder")
        return path

    def push_to_hub(
        self, repo_id: str, *, private: bool | None = None, token: str | None = None, revision: str | None = None,
        commit_message: str | None = None,
    ) -> str:  # fmt: skip
        """Upload the files of `save_pretrained` to the Hugging Face hub, and return the repository's address.

        Requires `pip install huggingface_hub`.

        Parameters
        ----------
        repo_id
            Repository, such as `name/model`; created if necessary.
        private
            Whether a new repository is private. Default: the account's setting.
        token
            Access token. Default: that of the logged-in user.
        revision
            Branch to upload to. Default: main.
        commit_message
            Commit message. Default: one that names the run.
        """
        from tempfile import TemporaryDirectory

        from recombine.store.pretrained import hub

        message = commit_message or f"Upload run {self.key}"
        with TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            with hub("repo_id", repo_id, token, "a hub repository", "written to") as api:
                address = api.create_repo(repo_id, private=private, exist_ok=True)
                repo_id = address.repo_id
                api.upload_folder(repo_id=repo_id, folder_path=folder, revision=revision, commit_message=message)
        return str(address)

    def content(self, name: str) -> bytes:
        """Return the content of a file; raise `StoreError` if it is damaged."""
        path = self.path / name
        try:
            with one_line_errors(path):
                content = checked(path, [self.digests()[name]])
        except Differs:
            content = None
        if content is None or (name == SPEC and spec_key(content) != self.key):
            raise StoreError(f"{str(path)!r} must be an undamaged file of this run")
        return content

    def digests(self) -> dict[str, str]:
        """Return the digests of the run's files by name; raise `Differs` if the manifest is damaged."""
        if not self._is_folder():
            raise Differs("not a folder")
        with one_line_errors(self.path / MANIFEST):
            try:
                manifest = checked(self.path / MANIFEST)
            except Differs as error:
                raise Differs(f"{MANIFEST}: {error}") from None
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            files = parsed_json(manifest)["files"]
            if set(files) == set(FILES) and manifest.decode() == manifest_text(self.key, files):
                return dict(files)
        raise Differs(f"{MANIFEST}: not as it was written")

    def _is_folder(self) -> bool:
        """Return whether the path is a folder and not a link to one."""
        with one_line_errors(self.path):
            return stat.S_ISDIR(os.lstat(self.path).st_mode)

    def damage(self) -> list[Problem]:
        """Return the damage found; raise an error if a file cannot be read (no permission, failing disk)."""
        try:
            digests = self.digests()
        except Differs as error:
            return [Problem(str(error))]
        problems = []
        with one_line_errors(self.path):
            for name, digest in digests.items():
                try:
                    checked(self.path / name, [digest])
                except Differs as error:
                    problems.append(Problem(f"{name}: {error}"))
            if not problems and spec_key(read(self.path / SPEC)) != self.key:
                problems = [Problem(f"{SPEC}: the spec of another run")]
        return problems

    def problems(self) -> list[Problem]:
        """Return the damage found, and any files that do not belong in the folder."""
        damage = self.damage()
        with one_line_errors(self.path):
            names = sorted(os.listdir(self.path)) if self._is_folder() else []
        return [*damage, *(stray(name) for name in names if name not in (*FILES, MANIFEST))]


def stray(name: str) -> Problem:
    """Return the problem to report for a file or folder that does not belong here."""
    return Problem(f"{name}: does not belong here", "stray")


def spec_key(content: bytes) -> str:
    """Return the key of a stored spec, or an empty string if it is invalid."""
    with suppress(ValueError):
        if isinstance(fields := parsed_json(content), dict):
            return stored_key(fields)
    return ""


def flattened(spec: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested fields as a flat dictionary with dotted names."""
    fields: dict[str, Any] = {}
    for name, value in spec.items():
        if isinstance(value, Mapping):
            fields.update(flattened(value, f"{prefix}{name}."))
        else:
            fields[prefix + name] = value
    return fields
