"""Trained weights in the layout of the Hugging Face hub: a folder that loads back as an ordinary module.

    model.safetensors       the weights
    config.json             the spec, the ends of the decoder, scores and versions
    README.md               a model card, for readers and for the hub's search

Nothing in a folder is run. The configuration is checked as a store's specs are, the decoder is one that is registered
here, and weights must have its names, shapes and types before any of its size is allocated. No file that the spec names
is opened, so that a folder of a stranger's reads nothing else; a spec is read when it is asked for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.checks import given_path, items, whole_number
from recombine.errors import InvalidValue, RecombineError, listed, reason_of
from recombine.files import one_line_errors, parsed_json, read_given, write
from recombine.records import Frozen
from recombine.store.hub import pulled, pushed
from recombine.store.model_card import model_card
from recombine.store.packing import pack, unpack
from recombine.store.run import SCORES, Run

if TYPE_CHECKING:
    from recombine.decoders import Interface, StagedDecoder
    from recombine.specs import RunSpec

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
MODEL_TYPE = "recombine"
FORMAT = 1
VERSIONS = ("recombine", "torch", "python", "precision", "device")
"""What a configuration says about where a run was trained."""
LONGEST_AXIS = 2**20
"""Most neurons of a factor's code, and most pixels of a side."""

LARGEST_CONSTANTS = 2**31
"""Most bytes of a decoder's buffers that are not among its weights."""


@dataclass(frozen=True)
class ModelConfig:
    """What a folder in the hub's layout says about its weights.

    Parameters
    ----------
    fields
        All of `config.json`.
    where
        The file, for messages.

    Examples
    --------
    >>> import recombine as rc
    >>> from tempfile import TemporaryDirectory
    >>> spec = rc.RunSpec(task=rc.BumpTask(size=8), decoder="mlp:width=8:depth=1", recipe=rc.Recipe(steps=2))
    >>> with TemporaryDirectory() as folder:
    ...     (run,) = rc.train(spec, f"{folder}/runs")
    ...     written = run.save_pretrained(f"{folder}/model")
    ...     config = rc.ModelConfig.from_pretrained(f"{folder}/model")
    >>> config.spec == spec
    True
    """

    fields: Mapping[str, Any]
    """All of `config.json`."""
    where: str = CONFIG
    """The file, for messages."""

    @classmethod
    def from_pretrained(
        cls, source: str | os.PathLike[str], *, revision: str | None = None, token: str | None = None
    ) -> ModelConfig:
        """The configuration of a folder or of a repository of the hub, without its weights.

        Parameters
        ----------
        source
            A folder that `Run.save_pretrained` wrote, or a repository of the hub, as `name/model`.
        revision
            Branch, tag or commit of a repository.
        token
            For a private repository. Default: as whoever is logged in.

        Returns
        -------
        ModelConfig
            The configuration.
        """
        return cls.read(_folder(source, [CONFIG], revision, token))

    @classmethod
    def read(cls, folder: Path) -> ModelConfig:
        """The configuration in a folder, as far as it can be checked by itself."""
        path = folder / CONFIG
        content = read_given(path, "source")
        try:
            fields = parsed_json(content)
        except ValueError:
            raise InvalidValue("source", str(path), "JSON") from None
        if not isinstance(fields, dict) or fields.get("model_type") != MODEL_TYPE:
            raise InvalidValue("source", str(path), f"a configuration whose model_type is {MODEL_TYPE!r}")
        if fields.get("format") != FORMAT:
            raise InvalidValue(f"{CONFIG}: format", fields.get("format"), f"{FORMAT}, which this version reads")
        for name in ("spec", "interface", "scores"):
            if not isinstance(fields.get(name), dict):
                raise InvalidValue(f"{CONFIG}: {name}", fields.get(name), "an object with named fields")
        return cls(fields, str(path))

    @cached_property
    def spec(self) -> RunSpec:
        """The spec that was trained; of a task on images of one's own, those must be at hand."""
        from recombine.specs import RunSpec

        return RunSpec(**RunSpec.from_stored(dict(self.fields["spec"])))

    @property
    def scores(self) -> dict[str, float]:
        """Scores of the run by name, as `Run.scores`; NaN where a region is empty."""
        given = self.fields["scores"]
        return {name: _score(name, given.get(name)) for name in SCORES}

    @property
    def interface(self) -> Interface:
        """The two ends of the decoder."""
        from recombine.decoders import Interface

        ends = self.fields["interface"]
        return Interface(_axes("code_sizes", ends), _axes("image_shape", ends))

    def module(self, weights: Mapping[str, Any]) -> StagedDecoder:
        """The decoder with these weights, which must be exactly its own."""
        import torch

        from recombine.decoders import DECODERS

        decoder, interface = DECODERS.parse(self.fields["spec"].get("decoder")), self.interface
        given = {name: (tuple(array.shape), str(array.dtype)) for name, array in weights.items()}
        with torch.random.fork_rng(devices=[]):
            for device in ("meta", "cpu"):  # first without memory: a configuration may ask for any size
                try:
                    with torch.device(device):
                        module = decoder.build(interface)
                except RecombineError:
                    raise
                except Exception as error:
                    if device == "meta":  # a decoder of a user's own that computes with its weights
                        continue
                    raise InvalidValue(
                        "decoder", decoder, f"a decoder that can be built ({reason_of(error)})"
                    ) from None
                _require_same(_described(module.state_dict()), given)
                _require_small_constants(module, interface)
        module.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
        return module.eval()


def save_pretrained(run: Run, folder: str | os.PathLike[str]) -> Path:
    """Write a run into a folder in the hub's layout; see `Run.save_pretrained`."""
    path = given_path("folder", folder)
    contents = _contents(run)
    with one_line_errors(path, "folder"):
        path.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write(path / name, content, "folder")
    return path


def push_to_hub(
    run: Run, repo_id: str, *, private: bool | None, token: str | None, revision: str | None, commit_message: str | None
) -> str:
    """Upload a run to the hub; see `Run.push_to_hub`."""
    message = commit_message or f"Upload run {run.key}"
    return pushed(repo_id, _contents(run), private=private, token=token, revision=revision, commit_message=message)


def from_pretrained(
    source: str | os.PathLike[str], *, revision: str | None = None, token: str | None = None
) -> StagedDecoder:
    """The trained network of a folder, or of a repository of the Hugging Face hub.

    Parameters
    ----------
    source
        A folder that `Run.save_pretrained` (or `recombine runs export`) wrote; or, where there is no such folder, a
        repository of the hub, as `name/model`, which needs `pip install huggingface_hub`.
    revision
        Branch, tag or commit of a repository.
    token
        For a private repository. Default: as whoever is logged in.

    Returns
    -------
    StagedDecoder
        An ordinary module, in evaluation mode, with the very bits that were trained. `ModelConfig.from_pretrained` says
        how it was trained.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import recombine as rc
    >>> spec = rc.RunSpec(task=rc.BumpTask(size=8), decoder="mlp:width=8:depth=1", recipe=rc.Recipe(steps=2))
    >>> with TemporaryDirectory() as folder:
    ...     [run] = rc.train(spec, f"{folder}/runs")
    ...     written = run.save_pretrained(f"{folder}/model")
    ...     module = rc.from_pretrained(f"{folder}/model")
    ...     config = rc.ModelConfig.from_pretrained(f"{folder}/model")
    >>> module(spec.task.examples(spec.task.grid.points).inputs).shape
    torch.Size([64, 8, 8])
    >>> config.spec == spec
    True
    """
    folder = _folder(source, [CONFIG, WEIGHTS], revision, token)
    config = ModelConfig.read(folder)
    path = folder / WEIGHTS
    content = read_given(path, "source")
    try:
        weights = unpack(content)
    except Exception as error:  # whatever a header of a stranger's makes the library raise
        raise InvalidValue("source", str(path), f"safetensors ({reason_of(error)})") from None
    return config.module(weights)


def _folder(source: str | os.PathLike[str], names: list[str], revision: str | None, token: str | None) -> Path:
    """The folder of a source: itself, or what is downloaded."""
    path = given_path("source", source)
    with one_line_errors(path, "source"):
        if path.is_dir():
            return path
    return pulled(os.fspath(source), names, revision=revision, token=token)


def _contents(run: Run) -> dict[str, bytes]:
    """The files of a run in the hub's layout; the configuration comes last, so that what has one is whole."""
    result, interface = run.result, run.spec.interface
    config = {
        "model_type": MODEL_TYPE,
        "architectures": [type(run.spec.decoder).__name__],
        "library_name": MODEL_TYPE,
        "format": FORMAT,
        "key": run.key,
        "spec": run.spec_fields,
        "interface": {"code_sizes": list(interface.code_sizes), "image_shape": list(interface.image_shape)},
        "status": run.status,
        "steps": result.get("steps"),
        "scores": result["scores"],
        "versions": {name: result["provenance"][name] for name in VERSIONS if name in result["provenance"]},
        "modules": sorted(_own_modules(run.spec)),
    }
    return {
        WEIGHTS: pack(run.weights(), {"format": "pt"}),
        CARD: model_card(config).encode(),
        CONFIG: (json.dumps(config, indent=2, allow_nan=False) + "\n").encode(),
    }


def _own_modules(part: Frozen) -> set[str]:
    """Modules that are not this package's and register a part of a spec: whoever loads it must import them."""
    module = type(part).__module__
    own = set() if module.startswith(f"{MODEL_TYPE}.") else {module}
    return own.union(*(_own_modules(value) for _, value in part if isinstance(value, Frozen)))


def _axes(name: str, ends: Mapping[str, Any]) -> tuple[int, ...]:
    field = f"{CONFIG}: interface.{name}"
    sizes = items(field, ends.get(name), int, example="a list of whole numbers", lone=False)
    if not sizes:
        raise InvalidValue(field, sizes, "at least one whole number")
    return tuple(whole_number(field, size, at_most=LONGEST_AXIS) for size in sizes)


def _score(name: str, value: Any) -> float:
    if value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidValue(f"{CONFIG}: scores.{name}", value, "a number or null")
    return float(value)


def _require_small_constants(module: StagedDecoder, interface: Interface) -> None:
    """Refuse constants (positions of pixels) of a size that the weights do not vouch for."""
    kept = module.state_dict().keys()
    size = sum(buffer.nbytes for name, buffer in module.named_buffers() if name not in kept)
    if size > LARGEST_CONSTANTS:
        allowed = f"images whose constants take at most {LARGEST_CONSTANTS >> 30} GiB"
        raise InvalidValue(f"{CONFIG}: interface.image_shape", interface.image_shape, allowed)


def _described(state: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and type of each tensor, in numpy's words."""
    return {name: (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")) for name, tensor in state.items()}


def _require_same(own: Mapping[str, object], given: Mapping[str, object]) -> None:
    """Refuse weights that are not those of the decoder."""
    for name in own:
        if own[name] != given.get(name):
            raise InvalidValue(f"{WEIGHTS}: {name}", given.get(name), f"what {CONFIG} says: {own[name]}")
    if more := sorted(set(given) - set(own)):
        raise InvalidValue(WEIGHTS, more[0], f"the tensors of the decoder: {listed(list(own)[:6])}")
