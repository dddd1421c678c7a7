"""On a CUDA device: the same results as on a CPU, in one graph, whatever the company."""

import numpy as np
import pytest
import torch

import recombine
from recombine import kernels
from recombine.decoders import CNN, DECODERS, LowRank
from recombine.reproduction.measuring import Batch, stage_profile
from recombine.store import Store
from recombine.sweep import train
from recombine.tasks import ArrayTask, SpriteTask
from recombine.training import Ensemble, State, fit, tables
from recombine.training.fit import Stepper
from tests.kernels.test_triton import checked
from tests.small import labelled_images, small_spec

pytestmark = pytest.mark.gpu
CPU = torch.device("cpu")
KINDS = list(DECODERS)


@pytest.fixture
def cuda():
    assert torch.cuda.is_available(), "tests marked gpu need a CUDA device"
    return torch.device("cuda")


def trained(specs, device):
    ensemble = Ensemble(specs, device)
    state = ensemble.initial()
    for _ in fit(ensemble, state):
        pass
    return ensemble, state


def different_members(kind):
    return [
        small_spec(kind),
        small_spec(kind, seed=1, lr=2e-3, weight_decay=0.2, absolute=0.1),
        small_spec(kind, seed=2, task={"training": "draws:23", "sigma": 1.5}),
        small_spec(kind, epochs=2),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_ensemble_trains_as_on_the_cpu(kind, cuda):
    specs = different_members(kind)
    (_, there), (_, here) = trained(specs, cuda), trained(specs, CPU)
    assert there.step.tolist() == here.step.tolist()
    for gpu, cpu in zip(there.errors, here.errors, strict=True):
        assert torch.allclose(gpu, cpu, rtol=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_member_ends_as_its_solo_run(kind, cuda):
    specs = different_members(kind)
    ensemble, together = trained(specs, cuda)
    for index, spec in enumerate(specs):
        _, alone = trained([spec], cuda)
        inputs = spec.task.examples(spec.task.grid.points).inputs.to(cuda)
        outputs = [ensemble.outputs(weights, inputs) for weights in (together.weights[index], alone.weights[0])]
        assert torch.allclose(*outputs, atol=1e-3)
        assert torch.allclose(together.errors[index], alone.errors[0], rtol=2e-3)
    assert not torch.allclose(together.weights[0], together.weights[1], atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_whole_step_is_one_graph_and_equals_plain_steps(kind, cuda):
    specs = different_members(kind)[:3]
    graphed, plain = Ensemble(specs, cuda), Ensemble(specs, cuda)
    first, second = graphed.initial(), plain.initial()
    stepper = Stepper(graphed, first)
    stepper.advance(6)
    assert isinstance(stepper.graph, torch.cuda.CUDAGraph)
    other = Stepper(plain, second)
    other.replay = lambda span: [other.step() for _ in range(span)]
    other.advance(6)
    assert first.step.tolist() == second.step.tolist() == [6, 6, 6]
    assert torch.allclose(first.weights, second.weights, atol=1e-3)
    for graph_errors, plain_errors in zip(first.errors, second.errors, strict=True):
        assert torch.allclose(graph_errors, plain_errors, rtol=1e-3)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if DECODERS[kind].direction == "decode"])
def test_images_in_colour_train_as_on_the_cpu(kind, precision, cuda):
    task = SpriteTask(size=20, factors="x=4,y=4,hue=3", holdout="center:factors=x,y", training="draws:40")
    specs = [small_spec(kind, seed=seed, precision=precision).replace(task=task) for seed in range(3)]
    exact = [spec.replace(recipe=spec.recipe.replace(precision="float32")) for spec in specs]
    (_, there), (_, here) = trained(specs, cuda), trained(exact, CPU)
    for gpu, cpu in zip(there.errors, here.errors, strict=True):
        assert torch.allclose(gpu, cpu, rtol=2e-3 if precision == "float32" else 0.1)


@pytest.mark.parametrize("kind", ["cnn", "mlp"])
def test_a_window_of_own_data_trains_to_the_bits_of_the_whole(kind, cuda, monkeypatch):
    data = ArrayTask(**labelled_images(3, channels=3), training="draws:40")
    specs = [small_spec(kind, seed=seed, precision="bf16", steps=30).replace(task=data) for seed in range(3)]
    whole, expected = trained(specs, cuda)
    assert isinstance(whole.table, tables.Resident)
    monkeypatch.setattr(tables, "RESIDENT_BYTES", 0)
    monkeypatch.setitem(tables.WINDOW_BYTES, "cuda", 60_000)
    streamed, state = trained(specs, cuda)
    assert streamed.table.longest_span < 30
    assert torch.equal(state.weights, expected.weights)


def test_a_diverging_member_does_not_disturb_its_neighbours(cuda):
    calm, wild = small_spec("cnn", steps=40), small_spec("cnn", seed=1, lr=1e18, steps=40)
    _, state = trained([calm, wild, calm.replace(seed=2)], cuda)
    assert state.alive.tolist() == [True, False, True]
    assert torch.isfinite(state.weights[[0, 2]]).all()
    _, alone = trained([calm], cuda)
    assert torch.allclose(state.errors[0], alone.errors[0], rtol=5e-3)


ON_KERNELS = {
    "cnn16": (CNN(width=16, depth=3), {}),
    "cnn64": (CNN(width=64, depth=3), {}),
    "low_rank": (LowRank(), {}),
    "mlp": ("mlp", {"absolute": 0.1}),
}


@pytest.mark.parametrize("kind", ON_KERNELS)
def test_on_kernels_a_member_is_as_alone_and_resumes_to_the_same_bits(kind, cuda):
    decoder, terms = ON_KERNELS[kind]
    given = {"steps": 30, "precision": "bf16", **terms}
    specs = [small_spec(decoder, seed=seed, lr=(1 + seed) * 1e-3, **given) for seed in range(3)]
    ensemble, whole = trained(specs, cuda)
    for index, spec in enumerate(specs):
        _, alone = trained([spec], cuda)
        assert torch.allclose(whole.errors[index], alone.errors[0], rtol=2e-2)
    state = ensemble.initial()
    Stepper(ensemble, state).advance(11)
    resumed = State.stack([state.member(index) for index in range(3)], cuda)
    for _ in fit(Ensemble(specs, cuda), resumed):
        pass
    assert torch.equal(resumed.weights, whole.weights)
    assert all(torch.equal(a, b) for a, b in zip(resumed.errors, whole.errors, strict=True))


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("kind", KINDS)
def test_faster_arithmetic_stays_near(kind, precision, cuda):
    exact, rough = (trained([small_spec(kind, precision=p)], cuda)[1] for p in ("float32", precision))
    assert torch.allclose(exact.errors[0], rough.errors[0], rtol=0.1)
    if precision == "bf16" or kind in ("cnn", "mlp"):  # in the tiniest products TF32 may not be used
        assert not torch.equal(exact.weights, rough.weights)


def test_measurements_are_the_same_on_the_gpu(cuda):
    module = small_spec("cnn").module()
    fields = {"encode": "bump", "holdout": "center:2:5"}
    here = recombine.diagnose(module, "x=0:7,y=0:7", **fields)
    there = recombine.diagnose(module.to(cuda), "x=0:7,y=0:7", **fields)
    for name in ("metric", "factorization", "probe_held_out", "stripe_index", "schmidt", "kernel_agreement"):
        assert np.allclose(here[name], there[name], rtol=1e-2, atol=1e-3), name


def test_stages_of_runs_are_profiled_as_on_the_cpu(cuda, store_path):
    runs = train(small_spec("cnn", steps=40).seeds(range(3)), store_path, device="cpu")
    here, there = (stage_profile(Batch(runs, device)) for device in (CPU, cuda))
    assert here.keys() == there.keys()
    for name, values in here.items():
        assert np.allclose(values, there[name], rtol=1e-2, atol=1e-3, equal_nan=True), name


def test_sweep_on_the_gpu_fills_the_store(cuda, store_path):
    specs = [small_spec("cnn", seed=seed) for seed in range(4)] + [small_spec("mlp")]
    runs = train(specs, store_path, device="cuda")
    assert [run.status for run in runs] == ["done"] * 5
    assert runs[0].result["provenance"]["members_together"] == 4
    assert all(not problems for _, problems in Store(store_path).verify())


def test_kernels_agree_with_torch_over_random_shapes(cuda):
    done = checked("cuda")
    assert done.stdout.strip() == "same", done.stderr[-3000:]


@pytest.mark.parametrize("kind", ON_KERNELS)
def test_training_without_kernels_is_the_same_within_rounding(kind, cuda):
    decoder, terms = ON_KERNELS[kind]
    specs = [small_spec(decoder, seed=seed, precision="bf16", **terms) for seed in range(3)]
    _, with_kernels = trained(specs, cuda)
    with kernels.without():
        _, without = trained(specs, cuda)
    if kind != "mlp":  # whose loss and optimiser are the same formulas
        assert not torch.equal(with_kernels.weights, without.weights)
    for one, other in zip(with_kernels.errors, without.errors, strict=True):
        assert torch.allclose(one, other, rtol=5e-2)


def test_members_stay_within_a_budget_of_memory(cuda, store_path):
    budget = 0.3
    specs = [small_spec(CNN(width=64, depth=3), seed=seed, steps=3, precision="bf16") for seed in range(100)]
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    runs = train(specs, store_path, device="cuda", memory=budget)
    assert [run.status for run in runs] == ["done"] * len(specs)
    assert torch.cuda.max_memory_reserved() <= budget * 2**30
    assert runs[0].result["provenance"]["members_together"] < len(specs)


def test_loss_takes_more_examples_than_a_grids_second_axis(cuda):
    from recombine.kernels.triton.distance import PixelMeans

    outputs = torch.randn(300, 256, 3, device=cuda, requires_grad=True)
    targets = torch.randn(300, 256, 3, device=cuda)
    means = (outputs - targets).square().mean(dim=2), (outputs - targets).abs().mean(dim=2)
    for ours, theirs in zip(PixelMeans.apply(outputs, targets), means, strict=True):
        slopes = [torch.autograd.grad(mean.sum(), outputs, retain_graph=True)[0] for mean in (ours, theirs)]
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(*slopes)
