"""The model card of a run: what the weights are, how they were trained, and how to load them.

The metadata at the top are YAML, as the hub reads it; each value is written as JSON, which is YAML too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

METRIC_NAMES = {
    "id_mse": "mean squared error, trained combinations",
    "ood_mse": "mean squared error, held-out combinations",
    "id_over_blank": "error over that of a blank output, trained combinations",
    "ood_over_blank": "error over that of a blank output, held-out combinations",
    "id_accuracy": "accuracy, trained combinations",
    "ood_accuracy": "accuracy, held-out combinations",
}
CARD = """\
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


def model_card(config: Mapping[str, Any]) -> str:
    """The card of a configuration, as `README.md` has it."""
    spec = config["spec"]
    architecture, task = config["architectures"][0], spec["task"]["kind"]
    scores = {name: value for name, value in config["scores"].items() if value is not None}
    rows = [f"| {METRIC_NAMES.get(name, name)} (`{name}`) | {value:.5g} |" for name, value in scores.items()]
    text = CARD.format(
        imports="".join(f"{_import(name)}\n" for name in config["modules"]),
        architecture=architecture,
        task=task,
        key=config["key"],
        status=config["status"],
        steps=config["steps"],
        scores="\n".join(rows),
        spec=json.dumps(spec, indent=2),
        versions=", ".join(f"{name} {value}" for name, value in config["versions"].items()) or "an unknown version",
    )
    lines = [f"{name}: {json.dumps(value)}" for name, value in _metadata(config, architecture, task, scores).items()]
    return "\n".join(["---", *lines, "---", "", text])


def _import(module: str) -> str:
    """The line that makes parts of a user's own known."""
    if module == "__main__":
        return "# here the classes that the training script registered must be registered again"
    return f"import {module}  # registers parts of this run"


def _metadata(
    config: Mapping[str, Any], architecture: str, task: str, scores: Mapping[str, float]
) -> dict[str, Any]:  # fmt: skip
    """What the hub searches by, with the scores as its leaderboards list them."""
    metrics = [
        {"type": name, "name": METRIC_NAMES.get(name, name), "value": value} for name, value in scores.items()
    ]  # fmt: skip
    result = {
        "task": {"type": "image-generation", "name": "rendering of factor values"},
        "dataset": {"type": task, "name": f"recombine {task} task"},
        "metrics": metrics,
    }
    return {
        "library_name": "recombine",
        "tags": ["recombine", "compositional-generalization", "pytorch", config["spec"]["decoder"]["kind"]],
        "model-index": [{"name": f"{architecture} {config['key']}", "results": [result] if metrics else []}],
    }
