"""One finished run as it lies in a store."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.files import digest_of
from recombine.store.arrays import unpack

if TYPE_CHECKING:
    from recombine.decoders import StagedDecoder
    from recombine.specs import RunSpec

MANIFEST = "manifest.json"
SPEC, RESULT, WEIGHTS, ARRAYS = "spec.json", "result.json", "weights.safetensors", "arrays.safetensors"


@dataclass(frozen=True)
class Run:
    """A finished run: its spec, scores, weights and arrays, read when asked for."""

    key: str
    path: Path

    @cached_property
    def result(self) -> dict[str, Any]:
        """`status` (done or diverged), `scores`, `steps` and `provenance`."""
        return dict(json.loads((self.path / RESULT).read_text()))

    @property
    def status(self) -> str:
        """`done`, or `diverged` when the loss stopped being a finite number."""
        return str(self.result["status"])

    @property
    def scores(self) -> dict[str, float]:
        """Mean squared errors, the same over blank, and accuracies, inside (`id`) and outside (`ood`) training.

        NaN where a region is empty.
        """
        found = self.result["scores"].items()
        return {name: float("nan") if value is None else float(value) for name, value in found}

    @property
    def spec_text(self) -> str:
        """The spec as canonical JSON."""
        return (self.path / SPEC).read_text()

    @cached_property
    def spec(self) -> RunSpec:
        """The spec."""
        from recombine.specs import RunSpec

        return RunSpec.from_json(self.spec_text)

    def weights(self) -> dict[str, Any]:
        """The trained parameters, as numpy arrays by name."""
        return unpack((self.path / WEIGHTS).read_bytes())

    def arrays(self) -> dict[str, Any]:
        """Per grid point `error`, `hit`, `blank`, `held_out`; per epoch `history`; as numpy arrays."""
        return unpack((self.path / ARRAYS).read_bytes())

    def module(self) -> StagedDecoder:
        """The trained network."""
        import torch

        module = self.spec.module()
        module.load_state_dict({name: torch.from_numpy(array) for name, array in self.weights().items()})
        return module.eval()

    def problems(self) -> list[str]:
        """What is wrong with the files: empty when every byte is as it was written.

        A file that is there and cannot be read (rights, a failing disk) is not damage: that is raised.
        """
        try:
            text = (self.path / MANIFEST).read_text()
            files = json.loads(text)["files"]
            if text != manifest_text(self.key, files):
                return [f"{MANIFEST}: not as it was written"]
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            return [f"{MANIFEST}: missing or not a manifest"]
        found = []
        for name, digest in files.items():
            try:
                if digest_of(self.path / name) != digest:
                    found.append(f"{name}: content changed")
            except FileNotFoundError:
                found.append(f"{name}: missing")
        return found


def manifest_text(key: str, files: dict[str, str]) -> str:
    """The one way to write a manifest, with a digest of itself."""
    body = json.dumps({"files": dict(sorted(files.items())), "key": key}, separators=(",", ":"))
    seal = hashlib.sha256(body.encode()).hexdigest()
    return json.dumps({"files": dict(sorted(files.items())), "key": key, "seal": seal}, separators=(",", ":"))
