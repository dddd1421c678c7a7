"""Runs in a store without training them."""

import time

import numpy as np

from tests.small import small_spec


def saved(store, seed=0, status="done", ood=1.0):
    spec = small_spec("mlp", seed=seed)
    scores = dict.fromkeys(["id_mse", "id_over_blank", "id_accuracy", "ood_mse", "ood_over_blank", "ood_accuracy"], ood)
    result = {"status": status, "scores": scores, "steps": 3, "provenance": {"finished": time.time()}}
    return store.save(
        spec.digest, spec.to_json(), result, {"w": np.arange(6.0)}, {"error": np.ones(4, dtype=np.float32)}
    )
