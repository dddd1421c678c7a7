"""Write the expected values: once, before a change that must not move them. `python -m tests.frozen.make`."""

from __future__ import annotations

import contextlib
import json
import tarfile
import tempfile
from pathlib import Path

import torch
from safetensors.numpy import save_file

import recombine as rc
from tests import frozen


def main() -> None:
    """Train, measure, judge and write."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = folder / "store"
        runs = {name: rc.train(frozen.small_spec(name), store, device="cpu")[0] for name in frozen.DECODERS}
        unfinished(store)
        preset = rc.PRESETS["quick"].changed(frozen.TINY)
        rc.reproduce(rc.STUDIES["encoding_width"], preset, folder / "runs", folder / "results", device="cpu")
        with tarfile.open(frozen.PACKED, "w:gz") as packed:
            packed.add(store, "store")
            packed.add(folder / "results", "results")
        for name, run in runs.items():
            save_file(dict(run.weights()), frozen.FROZEN / f"{name}.safetensors")
        values = {
            "keys": {name: [spec.digest, spec.to_json()] for name, spec in frozen.varied_specs().items()},
            "scores": {name: run.scores for name, run in runs.items()},
            "diagnoses": {name: frozen.plain(own) for name, own in frozen.diagnoses(runs["mlp"], folder).items()},
        }
    frozen.EXPECTED.write_text(json.dumps(values, separators=(",", ":")))


def unfinished(store: Path) -> None:
    """Leave a checkpoint in the store of a run that was interrupted."""

    def interrupt(now: rc.Progress) -> None:
        if now.steps_done >= frozen.LONG // 2:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt, rc.RecombineError):
        rc.train(frozen.long_spec(), store, device="cpu", checkpoint_seconds=0, watch=interrupt)


if __name__ == "__main__":
    main()
