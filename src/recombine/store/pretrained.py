"""Trained weights in the layout of the Hugging Face hub.

    model.safetensors       the weights
    config.json             spec, input and output shapes, scores and versions
    README.md               model card

Loading runs no code from the folder. The names, shapes and types of the weights are checked before memory is allocated.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.errors import InvalidValue, RecombineError, listed, reason_of
from recombine.files import one_line_errors, parsed_json, read_given
from recombine.store.names import SCORES, pack, unpack
from recombine.version import __version__

if TYPE_CHECKING:
    from recombine.decoders import Interface, StagedDecoder
    from recombine.records import Frozen
    from recombine.specs import RunSpec

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
MODEL_TYPE = "recombine"
FORMAT = 1
LARGEST = 2**26
"""Maximum number of values per image and per code that a configuration may request."""
REPOSITORY = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", re.ASCII)
"""Valid repository names, none of which can be a path."""
METRIC_NAMES = {
    "id_mse": "mean squared error, trained combinations",
    "ood_mse": "mean squared error, held-out combinations",
    "id_over_blank": "error relative to a blank output, trained combinations",
    "ood_over_blank": "error relative to a blank output, held-out combinations",
    "id_accuracy": "accuracy, trained combinations",
    "ood_accuracy": "accuracy, held-out combinations",
}
TEMPLATE = """\
---
{metadata}
---

# {architecture} on the {task} task

A decoder from factor values to images, trained by recombine with some
combinations of factors held out. Run `{key}`, {status} after {steps} steps.

```python
import recombine as rc
{imports}
module = rc.from_pretrained("…")  # this folder, or this repository
config = rc.ModelConfig.from_pretrained("…")
task = config.spec.task
outputs = module(task.examples(task.grid.points).inputs)
```

| score | value |
|---|---|
{scores}

The spec of the run:

```json
{spec}
```

Trained with {versions}.
"""


@dataclass(frozen=True)
class ModelConfig:
    """The configuration of an exported run, which `diagnose` and `explore` accept in place of a module.

    Parameters
    ----------
    fields
        Content of `config.json`.
    source
        Folder or repository of the checkpoint.
    revision
        Branch, tag or commit of a repository.
    token
        Access token for a private repository.

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
    source: str | os.PathLike[str]
    revision: str | None = None
    token: str | None = field(default=None, repr=False)

    @classmethod
    def from_pretrained(
        cls, source: str | os.PathLike[str], *, revision: str | None = None, token: str | None = None
    ) -> ModelConfig:
        """Return the configuration in a folder or hub repository without loading the weights.

        The arguments are those of `recombine.from_pretrained`.
        """
        path = _folder(source, [CONFIG], revision, token) / CONFIG
        content = read_given(path, "source")
        try:
            fields = parsed_json(content)
        except ValueError:
            raise InvalidValue("source", str(path), "JSON") from None
        if not isinstance(fields, dict) or fields.get("model_type") != MODEL_TYPE:
            raise InvalidValue("source", str(path), f"a configuration whose model_type is {MODEL_TYPE!r}")
        if fields.get("format") != FORMAT:
            raise InvalidValue(f"{CONFIG}: format", fields.get("format"), f"{FORMAT}, for this version of recombine")
        for name in ("spec", "interface", "scores"):
            if not isinstance(fields.get(name), dict):
                raise InvalidValue(f"{CONFIG}: {name}", fields.get(name), "an object with named fields")
        return cls(fields, source, revision, token)

    @cached_property
    def spec(self) -> RunSpec:
        """The spec that was trained; if its task uses image files, these must be available."""
        from recombine.specs import RunSpec

        return RunSpec.from_json(json.dumps(self.fields["spec"]))

    @property
    def scores(self) -> dict[str, float]:
        """Scores of the run by name, as in `Run.scores`."""
        given = {name: self.fields["scores"].get(name) for name in SCORES}
        if any(isinstance(value, bool) or not isinstance(value, int | float | None) for value in given.values()):
            raise InvalidValue(f"{CONFIG}: scores", given, "numbers or null")
        return {name: math.nan if value is None else float(value) for name, value in given.items()}

    @property
    def interface(self) -> Interface:
        """Input and output shapes of the decoder."""
        from recombine.decoders import Interface

        ends = {name: self.fields["interface"].get(name) for name in ("code_sizes", "image_shape")}
        for name, sizes in ends.items():
            are_sizes = isinstance(sizes, list) and sizes and all(type(size) is int and size > 0 for size in sizes)
            if not are_sizes or math.prod(sizes) > LARGEST:
                raise InvalidValue(f"{CONFIG}: interface.{name}", sizes, "positive integers of reasonable size")
        return Interface(**{name: tuple(sizes) for name, sizes in ends.items()})

    def module(self) -> StagedDecoder:
        """Return the trained decoder; the names, shapes and types of its weights must match the configuration."""
        import torch

        from recombine.decoders import DECODERS

        path = _folder(self.source, [CONFIG, WEIGHTS], self.revision, self.token) / WEIGHTS
        content = read_given(path, "source")
        try:
            weights = unpack(content)
        except Exception as error:  # an untrusted header may make the library raise anything
            raise InvalidValue("source", str(path), f"safetensors ({reason_of(error)})") from None
        decoder, interface = DECODERS.parse(self.fields["spec"].get("decoder")), self.interface
        given = {name: (tuple(array.shape), str(array.dtype)) for name, array in weights.items()}
        with torch.random.fork_rng(devices=[]):
            for device in ("meta", "cpu"):  # first without memory, since a configuration may request any size
                try:
                    with torch.device(device):
                        module = decoder.build(interface)
                except RecombineError:
                    raise
                except Exception as error:
                    if device == "meta":  # a user-defined decoder may compute with its weights
                        continue
                    allowed = f"a decoder that can be built ({reason_of(error)})"
                    raise InvalidValue("decoder", decoder, allowed) from None
                _require_same(module.state_dict(), given)
        module.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
        return module.eval()


def from_pretrained(
    source: str | os.PathLike[str], *, revision: str | None = None, token: str | None = None
) -> StagedDecoder:
    """Return the trained network in a folder or in a repository on the Hugging Face hub.

    Parameters
    ----------
    source
        A folder written by `Run.save_pretrained` or `recombine runs export`; if there is no such folder, a hub
        repository such as `name/model`, which requires `pip install huggingface_hub`.
    revision
        Branch, tag or commit of a repository.
    token
        Token for a private repository. Default: that of the logged-in user.

    Returns
    -------
    StagedDecoder
        The trained module in evaluation mode. `ModelConfig.from_pretrained` describes how it was trained.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import recombine as rc
    >>> spec = rc.RunSpec(task=rc.BumpTask(size=8), decoder="mlp:width=8:depth=1", recipe=rc.Recipe(steps=2))
    >>> with TemporaryDirectory() as folder:
    ...     [run] = rc.train(spec, f"{folder}/runs")
    ...     written = run.save_pretrained(f"{folder}/model")
    ...     module = rc.from_pretrained(f"{folder}/model")
    >>> module(spec.task.examples(spec.task.grid.points).inputs).shape
    torch.Size([64, 8, 8])
    """
    folder = _folder(source, [CONFIG, WEIGHTS], revision, token)
    return ModelConfig.from_pretrained(folder).module()


def _folder(source: str | os.PathLike[str], names: list[str], revision: str | None, token: str | None) -> Path:
    """Return the source folder, or a folder with these files from a repository, downloaded unless cached."""
    path, repo_id = Path(source), os.fspath(source)
    with one_line_errors(path, "source"):
        if path.is_dir():
            return path
    with hub("source", repo_id, token, "an existing folder, or a hub repository", "read") as api:
        return Path(api.snapshot_download(repo_id, revision=revision, allow_patterns=names))


@contextmanager
def hub(field: str, repo_id: Any, token: str | None, required: str, done: str) -> Iterator[Any]:
    """Yield the hub's API; turn any error it raises into a one-line message."""
    if not isinstance(repo_id, str) or not REPOSITORY.fullmatch(repo_id):
        raise InvalidValue(field, repo_id, f"{required} such as 'name/model'")
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise RecombineError("huggingface_hub is not installed: pip install huggingface_hub") from None
    try:
        yield HfApi(token=token, library_name=MODEL_TYPE, library_version=__version__)
    except Exception as error:
        raise InvalidValue(field, repo_id, f"{required} that can be {done} ({reason_of(error)})") from error


def hub_files(
    key: str, spec: RunSpec, fields: Mapping[str, Any], result: Mapping[str, Any], weights: Mapping[str, Any]
) -> dict[str, bytes]:
    """Return the files of an exported run; config.json is last, so that its presence marks a complete folder."""
    interface, provenance = spec.interface, result["provenance"]
    versions = [name for name in ("recombine", "torch", "python", "precision", "device") if name in provenance]
    config = {
        "model_type": MODEL_TYPE,
        "architectures": [type(spec.decoder).__name__],
        "library_name": MODEL_TYPE,
        "format": FORMAT,
        "key": key,
        "spec": fields,
        "interface": {"code_sizes": list(interface.code_sizes), "image_shape": list(interface.image_shape)},
        "status": result["status"],
        "steps": result.get("steps"),
        "scores": result["scores"],
        "versions": {name: provenance[name] for name in versions},
        "modules": sorted(_own_modules(spec)),
    }
    return {
        WEIGHTS: pack(weights, {"format": "pt"}),
        CARD: model_card(config).encode(),
        CONFIG: (json.dumps(config, indent=2, allow_nan=False) + "\n").encode(),
    }


def _own_modules(part: Frozen) -> set[str]:
    """Return the user modules that define classes used in a spec, and must be imported before loading it."""
    from recombine.records import Frozen  # imports pydantic, which listing runs does not need

    module = type(part).__module__
    modules = set() if module.startswith(f"{MODEL_TYPE}.") else {module}
    return modules.union(*(_own_modules(value) for _, value in part if isinstance(value, Frozen)))


def model_card(config: Mapping[str, Any]) -> str:
    """Return the model card: metadata in YAML (values as JSON, which is valid YAML), then Markdown."""
    spec, versions = config["spec"], config["versions"]
    architecture, task = config["architectures"][0], spec["task"]["kind"]
    scores = {name: value for name, value in config["scores"].items() if value is not None}
    metrics = [{"type": name, "name": METRIC_NAMES.get(name, name), "value": value} for name, value in scores.items()]
    result = {
        "task": {"type": "image-generation", "name": "rendering of factor values"},
        "dataset": {"type": task, "name": f"recombine {task} task"},
        "metrics": metrics,
    }
    metadata = {
        "library_name": MODEL_TYPE,
        "tags": [MODEL_TYPE, "compositional-generalization", "pytorch", spec["decoder"]["kind"]],
        "model-index": [{"name": f"{architecture} {config['key']}", "results": [result] if metrics else []}],
    }
    texts = {
        "metadata": "\n".join(f"{name}: {json.dumps(value)}" for name, value in metadata.items()),
        "imports": "".join(
            "# register the classes that the training script registered\n"
            if name == "__main__"
            else f"import {name}  # registers classes that this run uses\n"
            for name in config["modules"]
        ),
        "architecture": architecture,
        "task": task,
        "scores": "\n".join(f"| {score['name']} (`{score['type']}`) | {score['value']:.5g} |" for score in metrics),
        "spec": json.dumps(spec, indent=2),
        "versions": ", ".join(f"{name} {value}" for name, value in versions.items()) or "an unknown version",
    }
    return TEMPLATE.format_map({**config, **texts})


def _require_same(state: Mapping[str, Any], given: Mapping[str, object]) -> None:
    """Raise unless the weights have the names, shapes and types that the decoder expects."""
    expected = {name: (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")) for name, tensor in state.items()}
    for name in expected:
        if expected[name] != given.get(name):
            raise InvalidValue(f"{WEIGHTS}: {name}", given.get(name), f"{expected[name]}, as specified in {CONFIG}")
    if more := sorted(set(given) - set(expected)):
        raise InvalidValue(WEIGHTS, more[0], f"the tensors of the decoder: {listed(list(expected)[:6])}")
