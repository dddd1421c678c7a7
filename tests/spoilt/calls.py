"""One small valid call of every public function and class, by name, for `test_spoilt_calls.py` to spoil.

A call is a function and a maker of its keyword arguments. Names without a call are listed in `NOT_CALLED` with the
reason, so that a public name that is in neither is noticed.
"""

import inspect
import os
import tempfile
from functools import cache, partial
from pathlib import Path
from unittest import mock

import torch
from torch import nn

import recombine as rc
from recombine import diagnosis, metrics
from recombine.frozen import Frozen

NOT_CALLED = {
    "DECODERS": "a registry, see its parse", "ENCODINGS": "likewise", "HOLDOUTS": "likewise", "TASKS": "likewise",
    "TRAINING_RULES": "likewise", "PRESETS": "a dictionary", "STUDIES": "a dictionary",
    "PAPER": "a record",
    "DecoderSpec": "abstract", "Encoding": "abstract", "Holdout": "abstract", "Task": "abstract", "Study": "abstract",
    "DeviceError": "an exception", "InvalidValue": "an exception", "RecombineError": "an exception",
    "StoreError": "an exception", "RunsFailed": "an exception", "ExplorerPage": "a page that explore makes",
    "Diagnosis": "an xarray Dataset that diagnose makes",
    "Reader": "a type", "Tap": "a type", "__version__": "a text",
}  # fmt: skip
SHAPE = (3, 3)
POINTS = 9


def grid():
    return rc.FactorGrid((rc.Factor("x", 0, 2, 3), rc.Factor("y", 0, 2, 3)))


def held_out():
    return torch.tensor([0, 0, 0, 0, 1, 1, 0, 1, 1], dtype=torch.bool)


def randn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def gram():
    return randn(POINTS, 4) @ randn(POINTS, 4).mT


@cache
def spec():
    return rc.RunSpec(
        task=rc.BumpTask(size=6, training="draws:8"),
        decoder=rc.MLP(width=4, depth=1),
        recipe=rc.Recipe(steps=2, batch=4),
    )


@cache
def pretrained():
    """A folder in the hub's layout; names of repositories are looked for nowhere else."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    return str(run().save_pretrained(store().path.parent / "model"))


@cache
def own_data():
    return rc.ArrayTask(torch.rand(POINTS, 1, 3).numpy(), {"x": [0, 1, 2] * 3, "y": [0] * 3 + [1] * 3 + [2] * 3})


@cache
def network():
    return spec().module()


@cache
def store():
    return rc.Store(Path(tempfile.mkdtemp()) / "store")


@cache
def run():
    return rc.train([spec()], store(), device="cpu")[0]


@cache
def ensemble():
    return rc.Ensemble([spec()], torch.device("cpu"))


def codes(values):
    return spec().task.codes(values).float()


def reader():
    return metrics.decoder_reader(network(), codes)


def evaluation():
    return {
        "error": torch.rand(POINTS), "blank": torch.ones(POINTS), "hit": torch.ones(POINTS), "held_out": held_out()
    }  # fmt: skip


def exhausted(function):
    """The function, with what it yields taken to the end."""
    return lambda **arguments: list(function(**arguments))


MODULE = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3))
CPU = torch.device("cpu")
METRICS = {
    "Band": lambda: {"axis": torch.ones(3).long(), "position": torch.ones(3).long(), "strength": torch.ones(3)},
    "Estimate": lambda: {"value": torch.ones(2), "standard_error": torch.ones(2), "freedom": 3},
    "FamilyAgreement": lambda: {
        "agreement": {"or": torch.ones(())}, "width": {"or": torch.ones(2)}, "gaussian": {"or": torch.ones(2).bool()},
        "p_value": torch.ones(()),
    },
    "KernelAxis": lambda: {"single_factor": torch.ones(()), "above_delta": torch.ones(()), "rank": torch.ones(())},
    "KernelAgreement": lambda: {"agreement": {"binary": torch.ones(())}, "p_value": torch.ones(())},
    "LinearProbe": lambda: {"ridge": 1e-3},
    "SubGrid": lambda: {"grid": grid(), "indices": torch.arange(POINTS)},
    "draw_sub_grids": lambda: {"grid": grid(), "points": 4, "parts": 2, "seed": 0, "held_out": held_out()},
    "mean_estimate": lambda: {"values": torch.rand(2, 5), "population": 9},
    "neighbour_metric": lambda: {
        "reader": reader(), "grid": spec().task.grid, "indices": torch.tensor([0, 3]), "device": CPU, "memory": 1 << 20
    },
    "ratio_estimate": lambda: {"over": torch.rand(2, 5), "under": torch.rand(2, 5), "population": 9},
    "repeated_estimate": lambda: {"values": torch.rand(4, 2)},
    "nearest_values": lambda: {"outputs": torch.rand(2, POINTS, 5), "targets": torch.rand(POINTS, 5), "shape": SHAPE},
    "stratified_sample": lambda: {
        "held_out": held_out(), "points": 3, "seed": 0, "present": torch.arange(POINTS) > 0,
    },
    "sub_grid_shape": lambda: {"shape": SHAPE, "points": 4},
    "SamplingBias": lambda: {"whole": torch.ones(()), "estimates": torch.ones(3)},
    "Tuning": lambda: {"curves": (), "stripe_index": torch.ones(3), "localisation_index": torch.ones(3)},
    "averaged_codes": lambda: {"codes": randn(5, 4), "sizes": [2, 2], "training": randn(6, 4)},
    "averaged_prediction": lambda: {
        "signal": lambda part: part, "codes": randn(5, 4), "sizes": [2, 2], "training": randn(6, 4)
    },
    "band_alignment": lambda: {
        "images": randn(2, 3, 5, 4), "coordinates": torch.rand(2, 3), "axes": (1, 0), "tolerance": 1.0
    },
    "band_index": lambda: {"images": randn(2, 5, 4)},
    "band_position": lambda: {"images": randn(2, 5, 4)},
    "cross_terms": lambda: {"metric": randn(POINTS, 2, 2)},
    "block_contrast": lambda: {"gram": gram(), "positions": grid().points, "held_out": held_out()},
    "decoder_reader": lambda: {"decoder": network(), "encode": codes},
    "distance_inside": lambda: {"held_out": held_out(), "shape": SHAPE},
    "effective_rank": lambda: {"spectrum": torch.rand(4)},
    "ensemble_reader": lambda: {
        "decoder": network(), "encode": codes,
        "weights": {name: weight.detach()[None] for name, weight in network().named_parameters()},
    },
    "explained_variance": lambda: {"signals": randn(4, 5), "prediction": randn(4, 5)},
    "contrast": lambda: {"images": randn(2, 3, 5, 4), "background": 1.0},
    "extreme_pixel": lambda: {"images": randn(2, 5, 4), "polarity": "dark"},
    "factorization_curve": lambda: {"gram": gram(), "shape": SHAPE, "weight": "absolute"},
    "family_kernels": lambda: {"family": "or", "rows": randn(3, 2), "columns": randn(4, 2), "widths": (1.0, 2.0)},
    "features": lambda: {"reader": reader(), "points": spec().task.grid.points[:4], "members": 0, "memory": 1 << 20},
    "finite_difference_metric": lambda: {"activations": randn(POINTS, 4), "shape": SHAPE, "spacing": (1.0, 1.0)},
    "gram_matrix": lambda: {"outputs": randn(POINTS, 4), "kernel": "overlap", "dark": False, "threshold": 0.5},
    "held_out_statistics": lambda: {"volume": randn(POINTS), "held_out": held_out()},
    "hits": lambda: {"located": randn(POINTS, 2), "truth": randn(POINTS, 2), "tolerance": 1.0},
    "interaction_weights": lambda: {"gram": gram(), "shape": SHAPE, "weight": "square"},
    "interior": lambda: {"held_out": held_out(), "shape": SHAPE, "margin": 2},
    "kernel_agreement": lambda: {
        "gram": gram(), "positions": grid().points, "held_out": held_out(), "width": 1.0, "permutations": 9, "seed": 0
    },
    "kernel_axis": lambda: {"gram": gram(), "shape": SHAPE, "largest": 2},
    "landmarks": lambda: {"shape": SHAPE, "bump": 1.0, "broad": 2.0, "largest": 2},
    "laplacian": lambda: {"values": randn(POINTS), "shape": SHAPE},
    "kernel_families": lambda: {
        "gram": gram(), "shape": SHAPE, "held_out": held_out(), "rows": held_out(), "widths": (1.0, 2.0),
        "standardised": True,
    },
    "local_factorization": lambda: {"metric": randn(POINTS, 2, 2)},
    "log_volume": lambda: {"metric": randn(POINTS, 2, 2)},
    "matrix_effective_rank": lambda: {"images": randn(2, 5, 4)},
    "mean_band_index": lambda: {"maps": randn(2, 5, 4)},
    "mean_factorization": lambda: {"metric": randn(POINTS, 2, 2), "averaging": "means"},
    "memorised_prediction": lambda: {
        "signals": randn(POINTS, 5), "positions": grid().points, "held_out": held_out()
    },
    "metric_tensor": lambda: {
        "reader": reader(), "points": spec().task.grid.points[:4], "members": 0, "memory": 1 << 20, "repeated": True
    },
    "neuron_tuning": lambda: {"activations": randn(POINTS, 4), "shape": SHAPE},
    "nonnegative_superposition": lambda: {
        "signals": randn(POINTS, 5), "basis": randn(POINTS, 5), "positions": grid().points, "held_out": held_out(),
        "chosen": held_out(), "truth": randn(POINTS, 5), "draws": 2, "seed": 0,
    },
    "nonnegative_weights": lambda: {"gram": torch.eye(3), "products": randn(3)},
    "partial_factorization": lambda: {
        "gram": gram(), "shape": SHAPE, "order": 1, "weight": "absolute", "family": [{0}, {0, 1}]
    },
    "probe_scores": lambda: {
        "features": randn(POINTS, 4), "values": grid().points, "held_out": held_out(), "ridge": 1e-3
    },
    "region_mean": lambda: {"values": randn(POINTS), "region": held_out()},
    "roughness": lambda: {"values": randn(POINTS), "shape": SHAPE, "region": held_out()},
    "sampled_factorization": lambda: {
        "gram": gram()[1:, 1:], "shape": SHAPE, "kept": torch.arange(POINTS) > 0, "order": 1, "weight": "square",
        "family": [{0}, {0, 1}],
    },
    "sampled_interaction_weights": lambda: {
        "gram": gram()[1:, 1:], "shape": SHAPE, "kept": torch.arange(POINTS) > 0, "weight": "absolute"
    },
    "sampling_bias": lambda: {
        "gram": gram(), "shape": SHAPE, "kept": 0.9, "order": 1, "weight": "square", "family": [{0}, {0, 1}],
        "draws": 2, "seed": 0,
    },
    "schmidt_spectrum": lambda: {"gram": gram(), "shape": SHAPE},
    "squared_error": lambda: {"outputs": randn(2, POINTS, 4), "targets": randn(POINTS, 4)},
    "stage_sizes": lambda: {"reader": reader(), "points": spec().task.grid.points[:4], "members": 0},
    "peak_scores": lambda: {
        "signals": randn(POINTS, 5, 4), "positions": grid().points, "chosen": held_out(), "height": 1.0,
        "threshold": 0.2, "prominence": 0.1, "dark": False,
    },
    "separate_peaks": lambda: {
        "signals": randn(2, 5, 4), "height": 1.0, "threshold": 0.2, "prominence": 0.1, "dark": False
    },
    "stripe_superposition": lambda: {
        "signals": randn(POINTS, 5), "stripes": randn(2, POINTS, 5), "truth": randn(POINTS, 5), "chosen": held_out()
    },
    "superposition_scores": lambda: {
        "signals": randn(POINTS, 5), "positions": grid().points, "held_out": held_out(), "truth": randn(POINTS, 5),
        "averaged": randn(4, 5), "seed": 0,
    },
    "theoretical_kernel": lambda: {"name": "binary", "rows": randn(3, 2), "columns": randn(4, 2), "width": 1.0},
    "volume_element": lambda: {"metric": randn(POINTS, 2, 2)},
}  # fmt: skip
ENGINE = {
    "DiagnosisCallback": lambda: {
        "grid": grid(), "every": 2, "metrics": ["ood_error"], "log": lambda numbers, step: None, "prefix": "diagnosis/",
    },
    "Ensemble": lambda: {"specs": [spec()], "device": CPU},
    "Factor": lambda: {
        "name": "x", "low": 0.0, "high": 2.0, "count": 3, "form": "angle", "given": (0.0, 0.5, 2.0), "period": 4.0
    },
    "FactorGrid": lambda: {"factors": grid().factors},
    "HoldoutSummary": lambda: {"kept": 1, "held_out": 2, "unseen": ()},
    "LowRankEmbedding": lambda: {"code_sizes": (3, 3), "image_shape": (4, 5), "rank": 2, "vectors": "raw"},
    "ModelConfig": lambda: {"fields": {"model_type": "recombine"}, "where": "config.json"},
    "Progress": lambda: {"runs": 1, "finished": 0, "members": 1, "steps_done": 1, "steps_left": 3, "error": 0.5},
    "Findings": lambda: {"paper": rc.PAPER, "results": rc.Results(os.path.join(tempfile.gettempdir(), "no results"))},
    "Results": lambda: {"path": os.path.join(tempfile.gettempdir(), "no results")},
    "Run": lambda: {"key": "0" * 20, "path": store().path},
    "StagedDecoder": lambda: {"stages": {"output": nn.Linear(2, 3)}},
    "State": lambda: vars(ensemble().initial()),
    "Store": lambda: {"path": store().path, "create": False},
    "Summary": lambda: {"settings": {}, "seeds": 1, "diverged": 0, "scores": {}},
    "diagnose": lambda: {
        "module": MODULE, "grid": grid(), "encode": lambda values: values, "holdout": held_out(), "stages": ["0"],
        "targets": randn(POINTS, 3), "background": 0.0, "memory": 1 << 20, "geometry": "auto",
        "metrics": ["ood_error", "factorization_mean"],
    },
    "evaluate": lambda: {"task": spec().task, "forward": network(), "device": CPU, "chunk": 16},
    "explore": lambda: {
        "module": MODULE, "grid": grid(), "encode": lambda values: values, "holdout": held_out(),
        "targets": randn(POINTS, 3), "background": 0.0, "image_shape": (1, 3), "title": "a title",
    },
    "fit": lambda: {"ensemble": ensemble(), "state": ensemble().initial()},
    "from_pretrained": lambda: {"source": pretrained(), "revision": "main", "token": None},
    "module_reader": lambda: {"module": MODULE, "encode": lambda values: values, "names": ["0"]},
    "parse_grid": lambda: {"text": "x=0:2,y=0:1:5"},
    "reproduce": lambda: {  # of no studies: it looks at its arguments and trains nothing
        "studies": [], "preset": rc.PRESETS["quick"], "store": store(), "out": store().path.parent / "out",
        "device": "cpu", "members": 1, "processes": 1, "watch": lambda progress: None, "say": lambda line: None,
    },
    "scores": lambda: {"evaluation": evaluation()},
    "summarize": lambda: {"runs": [run()]},
    "load": lambda: {"store": store().path, "where": "seed >= 0", "form": "dataset", "arrays": ["error"]},
    "train": lambda: {
        "specs": [spec()], "store": store(), "device": "cpu", "members": 1, "checkpoint_seconds": 30.0,
        "watch": lambda progress: None, "processes": 1, "memory": None, "progress": False,
    },
}  # fmt: skip


def fitted():
    return metrics.LinearProbe().fit(randn(POINTS, 4), grid().points)


METHODS = {
    "DiagnosisCallback.__call__": (
        lambda **given: rc.DiagnosisCallback(grid(), metrics=["additivity"])(**given),
        lambda: {"module": MODULE, "step": 0},
    ),
    "ModelConfig.from_pretrained": (rc.ModelConfig.from_pretrained, lambda: {"source": pretrained()}),
    "Factor.position": (lambda values: grid().factors[0].position(values), lambda: {"values": torch.rand(4)}),
    "Factor.of": (rc.Factor.of, lambda: {"name": "x", "values": [0.0, 0.5, 2.0], "form": "angle", "period": 4.0}),
    "Factor.radians": (rc.Factor("x", 0, 2, 3, "angle").radians, lambda: {"values": torch.rand(4)}),
    "FactorGrid.axes": (lambda factors: grid().axes(factors), lambda: {"factors": ("y", 0)}),
    "FactorGrid.positions": (lambda indices: grid().positions(indices), lambda: {"indices": torch.arange(4)}),
    "FactorGrid.rows": (lambda indices: grid().rows(indices), lambda: {"indices": torch.arange(4)}),
    "HoldoutSummary.of": (rc.HoldoutSummary.of, lambda: {"mask": held_out(), "grid": grid()}),
    "Holdout.summary": (rc.Center().summary, lambda: {"grid": grid()}),
    "FactorGrid.nearest": (lambda values: grid().nearest(values), lambda: {"values": torch.rand(4, 2)}),
    "Fitted.predict": (lambda features: fitted().predict(features), lambda: {"features": randn(5, 4)}),
    "Fitted.score": (lambda **given: fitted().score(**given), lambda: {"features": randn(5, 4), "values": randn(5, 2)}),
    "LinearProbe.fit": (
        lambda **given: metrics.LinearProbe().fit(**given),
        lambda: {"features": randn(POINTS, 4), "values": grid().points},
    ),
    "RunSpec.from_json": (rc.RunSpec.from_json, lambda: {"text": spec().to_json()}),
    "RunSpec.seeds": (lambda seeds: spec().seeds(seeds), lambda: {"seeds": range(2)}),
    "Task.codes": (lambda values: spec().task.codes(values), lambda: {"values": torch.rand(4, 2)}),
    "Task.examples": (lambda values: spec().task.examples(values), lambda: {"values": torch.rand(4, 2)}),
    "Task.render": (lambda values: spec().task.render(values), lambda: {"values": torch.rand(4, 2)}),
    "Task.training_values": (lambda seed: spec().task.training_values(seed), lambda: {"seed": 3}),
    "BumpsTask.render": (lambda values: rc.BumpsTask().render(values), lambda: {"values": torch.ones(4, 3)}),
    "SpriteTask.render": (
        lambda values: rc.SpriteTask(factors="shape=3,x=4").render(values),
        lambda: {"values": torch.tensor([[0.0, 9.0], [2.0, 20.5]])},
    ),
    "ArrayTask.arrays": (
        rc.ArrayTask,
        lambda: {"images": torch.rand(3, 4, 4), "factors": {"x": [0, 1, 2]}, "holdout": rc.Nothing()},
    ),
    "diagnose.data": (
        rc.diagnose,
        lambda: {
            "module": MODULE,
            "data": own_data(),
            "encode": lambda values: values,
            "holdout": "center",
            "points": 9,
        },
    ),
    "ArrayTask.render": (lambda values: own_data().render(values), lambda: {"values": grid().points}),
    "ArrayTask.rows": (lambda values: own_data().rows(values), lambda: {"values": grid().points}),
    "RotationTask.gap": (rc.RotationTask.gap, lambda: {"angles": 36, "digits": 1, "edges": (160, 200)}),
    "RotationTask.render": (
        lambda values: rc.RotationTask(digits=2, angles=36).render(values),
        lambda: {"values": torch.tensor([[0.0, 90.0], [1.0, 20.0]])},
    ),
}


def record_calls():
    """Every record with its defaults, made and changed, and each part's own function."""
    for name in rc.__all__:
        part = getattr(rc, name)
        if not (inspect.isclass(part) and issubclass(part, Frozen)) or name in NOT_CALLED:
            continue
        fields = {field: info.default for field, info in part.model_fields.items()}
        if name == "Recipe":
            fields["steps"] = None
        if name == "ArrayTask":
            fields["data"] = own_data().data
        whole = own_data() if name == "ArrayTask" else part()
        yield name, (part, partial(dict, fields))
        yield f"{name}.replace", (whole.replace, partial(dict, fields))
        if issubclass(part, rc.Encoding):
            yield f"{name}.code", (part().code, lambda: {"values": torch.arange(3.0), "factor": grid().factors[0]})
            yield f"{name}.size", (part().size, lambda: {"factor": grid().factors[0]})
        if issubclass(part, rc.Holdout):
            yield f"{name}.mask", (part().mask, lambda: {"grid": grid()})
            yield f"{name}.resolved", (part().resolved, lambda: {"grid": grid()})


def without_exporting(explore):
    """The function, taking every module for too large to be translated: exporting takes a second each time."""

    def call(**arguments):
        with mock.patch("recombine.page.model.LARGEST_PROGRAM", -1):
            return explore(**arguments)

    return call


def all_calls():
    """Every call by name."""
    calls = {name: (getattr(metrics, name), maker) for name, maker in METRICS.items()}
    calls |= {name: (getattr(rc, name, None) or getattr(diagnosis, name), maker) for name, maker in ENGINE.items()}
    calls["explore"] = (without_exporting(rc.explore), calls["explore"][1])
    for name in ("features", "fit"):
        calls[name] = (exhausted(calls[name][0]), calls[name][1])
    for registry in ("DECODERS", "ENCODINGS", "HOLDOUTS", "TASKS", "TRAINING_RULES"):
        parts = getattr(rc, registry)
        usual = "bump" if registry == "TASKS" else next(iter(parts))
        calls[f"{registry}.parse"] = (parts.parse, lambda usual=usual: {"value": usual})
        calls[f"{registry}.register"] = (parts.register, lambda parts=parts: {"cls": next(iter(parts.values()))})
    return calls | METHODS | dict(record_calls())


def public_names():
    """Everything that the package offers."""
    return {*rc.__all__, *metrics.__all__, *diagnosis.__all__}
