"""What a page says about a decoder: the training images nearest to its output, and where and how much it is right."""

import json
import shutil
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import recombine as rc
from recombine.metrics import separate_peaks
from recombine.page.model import Blobs, measured, page_model
from recombine.page.subject import page_decoders
from recombine.reproduction.explorer import KeptDecoder, kept_decoders
from recombine.reproduction.results import Results

ROOT = Path(__file__).parents[2]
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
COUNT = 200


def run_of(task, **fields):
    """An untrained run of a small decoder."""
    spec = rc.RunSpec(task=task, decoder=rc.MLP(width=8, depth=1), **fields)
    weights = {name: tensor.numpy() for name, tensor in spec.module().state_dict().items()}
    return KeptDecoder("study", spec.digest, spec, {"data": str(task.training)}, weights, {})


def small_runs():
    """Runs with different training sets: drawn, chosen, with stripes, off the grid, and of a user's images."""
    bumps = {"size": 8, "encoding": "bump", "holdout": "center:3:4"}
    tasks = [
        rc.BumpTask(**bumps, training="draws:samples=30"), rc.BumpTask(**bumps, training="pick:5", isolated=True),
        rc.BumpTask(**bumps, training="pick:0", isolated=True), rc.BumpTask(**bumps, centers="real"),
        rc.BumpTask(**bumps, region="whole", training="pick:9"),
    ]  # fmt: skip
    generator = np.random.default_rng(0)
    images, x = generator.random((24, 4, 4), dtype=np.float32), [k % 4 for k in range(24)]
    factors = {"x": x, "y": [(k // 4) % 3 for k in range(24)]}
    arrays = [rc.ArrayTask(images, factors, holdout="mask:points=1,1", repeats=own) for own in ("keep", "mean")]
    return [run_of(task, seed=number) for number, task in enumerate([*tasks, *arrays])]


def shipped_runs():
    return kept_decoders(Results(ROOT / "results" / "paper"))


def drawn(own, seed):
    """Outputs at random points: the network's, faint ones, and true images with noise."""
    generator = torch.Generator().manual_seed(seed)
    values = own.grid.rows(torch.randint(own.grid.size, (COUNT,), generator=generator))
    outputs = own.outputs(values).flatten(1)
    truth = own.targets(own.grid.points[own.grid.nearest(values)] if own.data is None else _present(own, generator))
    noisy = truth.flatten(1) + 0.2 * torch.randn(truth.flatten(1).shape, generator=generator)
    kind = torch.arange(COUNT)[:, None] % 3
    return torch.where(kind == 0, outputs, torch.where(kind == 1, 0.05 * noisy, noisy.float()))


def _present(own, generator):
    points = torch.nonzero(own.spec.task.present).flatten()
    return own.grid.rows(points[torch.randint(len(points), (COUNT,), generator=generator)])


def listed(tmp_path, runs):
    """Outputs of each run, and what the page says of them."""
    blobs = Blobs()
    subjects = [page_decoders(run)[0] for run in runs]
    cases = []
    for number, own in enumerate(subjects):
        model = page_model(own, blobs, None)
        factors = [asdict(factor) for factor in own.grid.factors]
        cases.append({"model": model, "factors": factors, "outputs": drawn(own, number).tolist()})
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    (tmp_path / "numbers.bin").write_bytes(blobs.content)
    words = ["node", "tests/page/answers.js", str(tmp_path / "cases.json"), str(tmp_path / "numbers.bin")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return [(own, case["outputs"], answer) for own, case, answer in zip(subjects, cases, answers, strict=True)]


@needs_node
@pytest.mark.parametrize(
    "runs", [small_runs, pytest.param(shipped_runs, marks=pytest.mark.slow)], ids=["small", "shipped"]
)
def test_listed_images_are_the_nearest_of_the_training_set(tmp_path, runs):
    found = {True: 0, False: 0}
    for own, outputs, answers in listed(tmp_path, runs()):
        task = own.spec.task
        rows = task.training_values(own.spec.seed)
        images = task.images(rows).flatten(1).double().numpy()
        rows, images = rows.numpy()[:, : len(own.grid.factors)], np.round(images, 6)
        whole = np.unique(np.concatenate([np.nan_to_num(rows, nan=-1), images], axis=1), axis=0)
        members, images = whole[:, : rows.shape[1]], whole[:, rows.shape[1] :]
        for output, answer in zip(np.array(outputs), answers["answers"], strict=True):
            nearest = answer["nearest"]
            distances = ((images - output) ** 2).sum(1)
            blank = ((output - task.background) ** 2).sum()
            right = np.sort(distances)[:3]
            rounding = 2e-3 * (1 + right.max())  # images are stored with half precision
            assert (
                np.abs(np.array([one["distance"] for one in nearest]) - right[: len(nearest)]).max(initial=0) < rounding
            )
            assert all(right[len(nearest) :] > blank - rounding)
            for one in nearest:
                assert one["distance"] < blank
                values = np.array([np.nan if p is None else p for p in one["positions"]])
                values = [
                    np.nan_to_num(np.interp(p, np.arange(f.count), f.values), nan=-1) if p == p else -1
                    for p, f in zip(values, own.grid.factors, strict=True)
                ]
                same = np.abs(members - values).max(1) < 1e-9
                assert same.any()
                assert np.abs(distances[same] - one["distance"]).min() < rounding
            found[len(nearest) > 0] += 1
        compare_peaks(own, torch.tensor(outputs), [answer["peaks"] for answer in answers["answers"]])
        compare_scores(own, answers)
    assert min(found.values()) > COUNT / 2  # both answers are tried


def compare_peaks(own, outputs, found):
    """Peaks are those of `separate_peaks`, relative to the output's own maximum."""
    images = (outputs.double() - own.background).reshape(COUNT, *own.spec.task.image_shape)
    right = [torch.nonzero(image).tolist() for image in separate_peaks(images, own=True, threshold=0.3)]
    assert [[[peak["row"], peak["column"]] for peak in peaks] for peaks in found] == right


def compare_scores(own, answers):
    """Scores over the hold-out are those of `evaluate`, which are stored with a run."""
    task = own.spec.task
    if task.kind == "array":
        assert answers["scores"]["placed"] is None
        return
    scores = rc.evaluate(task, own.module, torch.device("cpu"))
    held = scores["held_out"].bool()
    placed, error = (
        scores["hit"][held].sum().item(),
        (scores["error"][held].mean() / scores["blank"][held].mean()).item(),
    )
    assert (answers["scores"]["count"], answers["scores"]["placed"]) == (int(held.sum()), placed)
    assert abs(answers["scores"]["error"] / error - 1) < 1e-3
    assert answers["composes"] == (error < 0.5 and placed >= 0.9 * held.sum())


@needs_node
def test_modules_are_compared_with_kept_combinations(tmp_path):
    task = rc.BumpTask(size=8, encoding="bump", holdout="center:3:4")
    (own,) = page_decoders(
        run_of(task).module(),
        grid=task.grid, encode="bump", holdout=task.held_out, targets=task.render,
    )  # fmt: skip
    blobs = Blobs()
    trained = page_model(own, blobs, None)["trained"]
    start, length = trained["seen"]["start"], trained["seen"]["length"]
    seen = np.unpackbits(np.frombuffer(blobs.content[start : start + length], np.uint8), bitorder="little")[:64]
    assert seen.tolist() == (~task.held_out).int().tolist()
    assert (trained["images"], trained["positions"]) == (None, [])


@pytest.mark.parametrize("own", small_runs(), ids=lambda own: own.labels["data"])
def test_a_page_of_what_was_measured_before_is_the_same(own):
    found, blobs = [], [Blobs(), Blobs()]
    for run, buffer in zip((own, replace(own, measured=measured(own))), blobs, strict=True):
        (subject,) = page_decoders(run)
        found.append(page_model(subject, buffer, None))
    assert found[0] == found[1]
    for arrays in (found[0][name] for name in ("errors", "places", "truth")):
        if arrays is not None:
            part = slice(arrays["start"], arrays["start"] + arrays["length"])
            assert blobs[0].content[part] == blobs[1].content[part]
    assert found[0]["errors"] is not None
