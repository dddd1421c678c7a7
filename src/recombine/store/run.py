"""One finished run as it lies in a store.

A run's folder holds exactly the files of `FILES` and a manifest with their digests, which carries a digest of itself.
The folder's name is the run's key, made of its spec and the revision of the training code (`recombine.keys`). Whatever
is read is compared with the manifest first.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from recombine.errors import StoreError
from recombine.files import NotRegular, digest_of, one_line_errors, parsed_json, read, refused
from recombine.keys import stored_key, with_present_names
from recombine.store.packing import unpack

if TYPE_CHECKING:
    from recombine.decoders import StagedDecoder
    from recombine.specs import RunSpec

MANIFEST = "manifest.json"
SPEC, RESULT, WEIGHTS, ARRAYS = "spec.json", "result.json", "weights.safetensors", "arrays.safetensors"
FILES = (SPEC, RESULT, WEIGHTS, ARRAYS)
SCORES = ("id_mse", "ood_mse", "id_over_blank", "ood_over_blank", "id_accuracy", "ood_accuracy")
"""What every result has; null where a region is empty."""


@dataclass(frozen=True)
class Problem:
    """Something odd about an entry of a store."""

    text: str
    kind: Literal["damage", "stray", "unreadable"] = "damage"
    """Bytes that changed or are missing; an entry that is none of ours; one that the system does not let us read."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Run:
    """A finished run: its spec, scores, weights and arrays, read when asked for.

    Parameters
    ----------
    key
        Its name: the digest of its spec.
    path
        Its folder in the store.

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
        """`status` (done or diverged), `scores`, `steps` and `provenance`; of sampled grids `standard_errors` too."""
        result = parsed_json(self.content(RESULT))
        if not is_result(result):
            raise StoreError(f"store must be one whose results are whole, got {str(self.path / RESULT)!r}")
        return dict(result)

    @property
    def status(self) -> str:
        """`done`, or `diverged` when the loss stopped being a finite number."""
        return str(self.result["status"])

    @property
    def scores(self) -> dict[str, float]:
        """Mean squared errors, the same over blank, and accuracies, inside (`id`) and outside (`ood`) training.

        NaN where a region is empty.
        """
        scores = self.result["scores"].items()
        return {name: float("nan") if value is None else float(value) for name, value in scores}

    @property
    def standard_errors(self) -> dict[str, float]:
        """How far each score may be off because the grid was too large to evaluate whole; 0 where it was not.

        NaN where a region is empty, or too few of its points were drawn.
        """
        errors = self.result.get("standard_errors") or dict.fromkeys(self.result["scores"], 0.0)
        return {name: float("nan") if value is None else float(value) for name, value in errors.items()}

    @property
    def spec_text(self) -> str:
        """The spec and the revision of the code that trained it, as JSON."""
        return self.content(SPEC).decode()

    @property
    def spec_fields(self) -> dict[str, Any]:
        """The same as plain data, with the names that fields have now."""
        return with_present_names(parsed_json(self.spec_text))

    @cached_property
    def spec(self) -> RunSpec:
        """The spec."""
        from recombine.specs import RunSpec

        return RunSpec.from_json(self.spec_text)

    def weights(self) -> dict[str, Any]:
        """The trained parameters, as numpy arrays by name."""
        return unpack(self.content(WEIGHTS))

    def arrays(self) -> dict[str, Any]:
        """Per grid point `error`, `hit`, `blank`, `held_out`; per epoch `history`; as numpy arrays."""
        return unpack(self.content(ARRAYS))

    def module(self) -> StagedDecoder:
        """The trained network."""
        import torch

        module = self.spec.module()
        module.load_state_dict({name: torch.from_numpy(array) for name, array in self.weights().items()})
        return module.eval()

    # -- the layout of the Hugging Face hub ----------------------------------------------------------------------

    def save_pretrained(self, folder: str | os.PathLike[str]) -> Path:
        """Write weights, configuration and model card as the Hugging Face hub has them.

        Parameters
        ----------
        folder
            Where to; it is made where there is none, and its `model.safetensors`, `config.json` and `README.md` are
            written again.

        Returns
        -------
        Path
            The folder, which `recombine.from_pretrained` reads.
        """
        from recombine.store.pretrained import save_pretrained

        return save_pretrained(self, folder)

    def push_to_hub(
        self, repo_id: str, *, private: bool | None = None, token: str | None = None, revision: str | None = None,
        commit_message: str | None = None,
    ) -> str:  # fmt: skip
        """Upload the same files to the Hugging Face hub, as one commit; needs `pip install huggingface_hub`.

        Parameters
        ----------
        repo_id
            The repository, as `name/model`; it is made where there is none.
        private
            Whether a new repository is private. Default: as the account's settings say.
        token
            Default: as whoever is logged in.
        revision
            The branch. Default: the main one.
        commit_message
            Default: one that names the run.

        Returns
        -------
        str
            The repository's address.
        """
        from recombine.store.pretrained import push_to_hub

        return push_to_hub(
            self, repo_id, private=private, token=token, revision=revision, commit_message=commit_message
        )

    # -- whole or damaged --------------------------------------------------------------------------------------

    def content(self, name: str) -> bytes:
        """A file as it was written, or `StoreError`."""
        path = self.path / name
        try:
            digests = self.digests()
            with one_line_errors(path):
                content = read(path)
            same = hashlib.sha256(content).hexdigest() == digests.get(name)
        except ValueError:
            same = False
        if not same or (name == SPEC and spec_key(content) != self.key):
            raise StoreError(f"store must be one whose files are unchanged, got {str(path)!r}")
        return content

    def digests(self) -> dict[str, str]:
        """Digests of the run's files by name; `ValueError` where the manifest is not as it was written."""
        if not self._is_folder():
            raise ValueError("not a folder")
        with one_line_errors(self.path / MANIFEST):
            text = read(self.path / MANIFEST).decode()
        manifest = parsed_json(text)
        files = manifest.get("files") if isinstance(manifest, dict) else None
        if not isinstance(files, dict) or set(files) != set(FILES) or text != manifest_text(self.key, files):
            raise ValueError("not as it was written")
        return files

    def _is_folder(self) -> bool:
        """Whether the path is a folder itself, not a link to one."""
        with one_line_errors(self.path):
            return stat.S_ISDIR(os.lstat(self.path).st_mode)

    def damage(self) -> list[Problem]:
        """What is wrong with the run's own files: empty when every byte is as it was written.

        A file that is there and cannot be read (rights, a failing disk) is not damage: that is raised.
        """
        if not self._is_folder():
            return [Problem("not a folder")]
        if problem := _absent(self.path / MANIFEST):
            return [problem]
        try:
            digests = self.digests()
        except ValueError:
            return [Problem(f"{MANIFEST}: not as it was written")]
        with one_line_errors(self.path):
            problems = [problem for name, digest in digests.items() if (problem := self._changed(name, digest))]
            if not problems and spec_key(read(self.path / SPEC)) != self.key:
                problems = [Problem(f"{SPEC}: the spec of another run")]
        return problems

    def _changed(self, name: str, digest: str) -> Problem | None:
        path = self.path / name
        if problem := _absent(path):
            return problem
        return None if digest_of(path) == digest else Problem(f"{name}: content changed")

    def problems(self) -> list[Problem]:
        """Damage, and entries of the folder that are none of the run's files."""
        damage = self.damage()
        with one_line_errors(self.path):
            names = sorted(os.listdir(self.path)) if self._is_folder() else []
        return [*damage, *(stray(name) for name in names if name not in (*FILES, MANIFEST))]


def stray(name: str) -> Problem:
    """The problem of an entry that this package did not make."""
    return Problem(f"{name}: does not belong here", "stray")


def _absent(path: Path) -> Problem | None:
    """Why there is no regular file at a path; None where there is one."""
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return Problem(f"{path.name}: missing")
    except OSError as error:
        refused(path, error)
    return None if stat.S_ISREG(mode) else Problem(f"{path.name}: {NotRegular(path).strerror}")


def is_result(result: Any) -> bool:
    """Whether a JSON value has what every run's result has."""
    if not isinstance(result, dict) or not isinstance(result.get("status"), str):
        return False
    scores, provenance = result.get("scores"), result.get("provenance")
    if not isinstance(scores, dict) or not isinstance(provenance, dict):
        return False
    numbers = [scores.get(name, "absent") for name in SCORES]
    return all(number is None or isinstance(number, (int, float)) for number in numbers)


def spec_key(content: bytes) -> str:
    """The key of a run with this spec; nothing's where it is none."""
    try:
        fields = parsed_json(content)
    except ValueError:
        return ""
    return stored_key(fields) if isinstance(fields, dict) else ""


def manifest_text(key: str, files: dict[str, str]) -> str:
    """The one way to write a manifest, with a digest of itself."""
    body = json.dumps({"files": dict(sorted(files.items())), "key": key}, separators=(",", ":"))
    seal = hashlib.sha256(body.encode()).hexdigest()
    return json.dumps({"files": dict(sorted(files.items())), "key": key, "seal": seal}, separators=(",", ":"))
