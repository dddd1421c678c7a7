"""`recombine bench`: what is compared is the same network, and its numbers reach the documents."""

import importlib
import importlib.util
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from recombine import kernels
from recombine.benchmark import CASES, ablation, decompositions, performance_blocks
from recombine.benchmark.decompositions import Workload, compare_decompositions
from recombine.benchmark.figure import performance_figure
from recombine.benchmark.ours import timed
from recombine.benchmark.plain import PlainLoop
from recombine.benchmark.precision import compare_precisions, told_apart
from recombine.benchmark.published import plain_module
from recombine.benchmark.roofline import Work, work_of
from recombine.specs import Recipe, RunSpec
from recombine.tasks import BumpTask
from tests.command import run

CPU = torch.device("cpu")
SMALL = {"size": 14, "training": "draws:40"}


def bench(*words):
    return run("bench", *words)


@pytest.mark.parametrize("size", [14, 20])
def test_the_published_cnn_is_ours(size):
    spec = RunSpec(task=BumpTask(size=size), decoder="cnn:width=6:depth=3")
    ours, theirs = spec.module(), plain_module(spec)
    with torch.no_grad():
        for one, other in zip(theirs.parameters(), ours.parameters(), strict=True):
            one.copy_(other)
    codes = torch.randn(5, spec.interface.code_size)
    torch.testing.assert_close(theirs(codes), ours(codes), rtol=1e-4, atol=1e-5)


def test_the_published_transformer_is_ours():
    spec = RunSpec(task=BumpTask(size=6), decoder="transformer:width=8:depth=2:heads=2:feedforward=12")
    ours, theirs = spec.module(), plain_module(spec)
    names = {
        "mix.": "self_attn.in_proj_", "merge.": "self_attn.out_proj.", "feed.0.": "linear1.", "feed.2.": "linear2.",
        "after_attention.": "norm1.", "after_feed.": "norm2.",
    }  # fmt: skip
    state = {}
    for name, value in ours.state_dict().items():
        found = re.fullmatch(r"stages\.layer(\d+)\.(.*)", name)
        if found:
            own = next(own for own in names if found[2].startswith(own))
            name = f"layers.layers.{int(found[1]) - 1}.{found[2].replace(own, names[own])}"
        name = name.replace("stages.tokens.", "tokens.").replace("stages.output.0.", "read.")
        state[name] = value
    theirs.load_state_dict(state)
    codes = torch.randn(3, spec.interface.code_size)
    torch.testing.assert_close(theirs(codes), ours(codes), rtol=1e-4, atol=1e-5)


def test_work_of_a_known_network():
    spec = RunSpec(task=BumpTask(**SMALL), decoder="mlp:width=8:depth=1", recipe=Recipe(batch=4))
    code, pixels = spec.interface.code_size, 14 * 14
    forward = 2 * 4 * (code * 8 + 8 * pixels)
    weights = forward
    inputs = 2 * 4 * 8 * pixels  # the code needs no gradient
    parameters = code * 8 + 8 + 8 * pixels + pixels
    assert work_of(spec) == Work(forward + weights + inputs, 28 * parameters + 4 * 4 * 4 * (8 + pixels))


def test_every_case_counts_its_work():
    for case in CASES.values():
        work = work_of(case.spec("float32"))
        assert work.operations > 0
        assert work.floor(1e12, 1e12) > 0


def test_a_plain_loop_learns_and_ours_is_timed():
    spec = RunSpec(task=BumpTask(**SMALL), decoder="mlp:width=16:depth=1", recipe=Recipe(epochs=3, batch=16, lr=0.01))
    loop = PlainLoop(spec, CPU, workers=0)
    first = loop.epoch()
    for _ in range(20):
        last = loop.epoch()
    assert last < first
    assert spec.total_steps == loop.steps == 9
    assert timed(spec, 2, CPU, 4).seconds > 0


def test_kernels_are_timed_one_by_one(monkeypatch):
    monkeypatch.setattr(ablation, "USED", {"CNN, quick preset": ("network", "adamw")})
    monkeypatch.setattr(ablation, "ROUNDS", 1)
    threads = torch.get_num_threads()
    rows = ablation.compare_kernels(CPU, "float32", 1)
    assert torch.get_num_threads() == threads
    assert [row["kernel"] for row in rows] == ["network", "adamw", "all"]
    assert all(row["ratio"] == row["without"] / row["with"] for row in rows)
    text = performance_blocks({"provenance": {}, "limits": {"copy": 1.0}, "kernels": rows}, "here")["kernels_here"]
    assert text.count("CNN, quick preset") == 3
    assert "any kernel" in text


def test_every_kernel_of_both_backends_is_timed():
    assert {name for used in ablation.USED.values() for name in used} == set(kernels.SHARED)
    assert ablation.USED.keys() <= CASES.keys()


def test_distributions_are_distinct_texts_when_they_differ():
    chance = np.random.default_rng(0)
    errors = 10 ** chance.normal(size=(3, 200))
    same = {"id_mse": list(errors[0]), "ood_mse": list(errors[1])}
    other = {"id_mse": list(errors[2]), "ood_mse": list(errors[1])}
    wider = {"id_mse": list(errors[0]), "ood_mse": list(errors[1] ** 2)}
    shifted = {"id_mse": list(errors[0]), "ood_mse": list(10 * errors[1])}
    assert not told_apart(same, same)["told_apart"]
    assert not told_apart(same, other)["told_apart"]
    assert told_apart(same, wider)["told_apart"]
    assert told_apart(same, shifted)["told_apart"]
    for lost in (errors[1][:-1], [], [*errors[1][:-1], np.nan]):
        assert told_apart(same, {**same, "ood_mse": list(lost)})["told_apart"]


SMALL_SUMS = Workload(outputs=3, members=2, shape=(5, 4, 3), rank=2, sample=4)


def test_sums_of_products_are_timed_beside_loops_that_solve_them_as_well():
    lines = []
    compared = compare_decompositions(CPU, lines.append, SMALL_SUMS)
    ours, plain = compared["rows"][:2]
    assert compared["problems"] == 6
    assert 0 < ours["error"] < 0.15
    assert plain["error"] == pytest.approx(ours["error"], abs=0.01)
    assert plain["ratio"] == plain["seconds"] / ours["seconds"]
    assert all(f"error {row['error']:.5f}" in line for row, line in zip(compared["rows"], lines, strict=False))
    if importlib.util.find_spec("tensorly") is None:
        assert lines[2:] == [decompositions.MISSING]
    else:
        assert compared["rows"][2]["error"] == pytest.approx(ours["error"], abs=0.01)
    text = performance_blocks({"provenance": {}, "limits": {"copy": 1.0}, "cp": compared}, "here")["cp_here"]
    assert "6 outputs over a grid of 5×4×3" in text
    assert f"{plain['error']:.4f}" in text


def test_tensorly_is_called_as_it_is_documented(monkeypatch):
    """Against a stand-in that checks its arguments and solves by our plain loop."""
    starts = []

    def parafac(tensor, rank, n_iter_max, tol, init, random_state):
        assert (tensor.shape, rank, n_iter_max, tol) == ((5, 4, 3), 2, 100, 1e-8)
        starts.append((init, random_state))
        functions, weights = decompositions.plain_loop(tensor, rank, random_state)
        return 2 * weights, [functions[0] / 2, *functions[1:]]

    modules = {
        "tensorly": SimpleNamespace(__version__="0"), "tensorly.decomposition": SimpleNamespace(parafac=parafac),
    }  # fmt: skip
    monkeypatch.setattr(decompositions, "import_module", modules.__getitem__)
    compared = compare_decompositions(CPU, workload=replace(SMALL_SUMS, restarts=2))
    assert [row["way"] for row in compared["rows"][1:]] == ["plain loop (NumPy)", "tensorly 0 in a loop"]
    assert compared["rows"][2]["error"] == pytest.approx(compared["rows"][1]["error"])
    assert starts[1:3] == [("svd", 0), ("random", 1)]


def test_a_peak_is_measured_in_the_precision_that_is_timed(monkeypatch):
    module = importlib.import_module("recombine.benchmark.record")
    monkeypatch.setattr(module, "product_rate", lambda device, kind: {"float32": 2.0, "bf16": 3.0}[kind])
    monkeypatch.setattr(module, "copy_rate", lambda device: 1.0)
    assert module.measure(CPU, [], precision="bf16")["limits"] == {"copy": 1.0, "float32": 2.0, "bf16": 3.0}


def test_precisions_are_compared_on_trained_networks():
    base = RunSpec(task=BumpTask(size=8, training="draws:40"), decoder="mlp:width=8:depth=1", recipe=Recipe(steps=20))
    compared = compare_precisions(CPU, seeds=4, base=base)
    assert set(compared["errors"]) == {"float32", "bf16"}
    assert len(compared["errors"]["bf16"]["ood_mse"]) == 4
    assert compared["fastest_alike"] in ("float32", "bf16")


def test_a_record_becomes_a_document_and_a_picture(tmp_path, capsys):
    assert bench("store", "--device", "cpu", "--out", str(tmp_path / "here.json")) == 0
    record = json.loads((tmp_path / "here.json").read_text())
    assert record["store"]["served"] > 0
    row = {
        "case": "CNN", "members": 2, "plain": 8.0, "plain_without_workers": 7.0, "graphed": None, "ours": 0.5,
        "ratio": 16.0, "rate": 1e12, "share": 0.25, "floor": 0.1, "bound": "bytes", "gap": 5.0,
    }  # fmt: skip
    record["engine"] = [row]
    (tmp_path / "here.json").write_text(json.dumps(record))
    page = tmp_path / "page.md"
    page.write_text("# Speed\n<!-- engine_here: begin -->\nold\n<!-- engine_here: end -->\n")
    assert bench("--from", str(tmp_path / "here.json"), "--write", str(page)) == 0
    assert "**16×**" in page.read_text()
    assert "old" not in page.read_text()
    assert (tmp_path / "images" / "performance_here.svg").exists()
    assert "store_here" in performance_blocks(record, "here")
    assert len(performance_figure(record).axes) == 1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["speed"], "what: 'speed' is not allowed; allowed: engine"),
        (["--steps", "0"], "--steps: '0' is not allowed; allowed: at least 1"),
        (["--processes", "0"], "--processes: '0' is not allowed"),
        (["--precision", "int8"], "precision: 'int8' is not allowed; allowed: float32, tf32, bf16"),
        (["--precision", "tf32", "--device", "cpu"], "precision: 'tf32' is not allowed"),
        (["--from", "nothing.json"], "nothing.json"),
        (["engine", "--from", "nothing.json"], "what: 'engine' is not allowed"),
        (["--device", "tpu"], "device: 'tpu' is not allowed"),
    ],
)
def test_mistakes_are_one_line(words, line, capsys):
    assert bench(*words) == 2
    written = capsys.readouterr().err
    assert line in written
    assert len(written.strip().splitlines()) == 1


def test_a_file_that_is_no_record_is_refused(tmp_path, capsys):
    path = tmp_path / "x.json"
    path.write_text("[]")
    assert bench("--from", str(path)) == 2
    assert "a record written by" in capsys.readouterr().err
