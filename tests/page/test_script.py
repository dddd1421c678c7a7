"""The page's script under Node: its own tests, its linters, and equality with torch."""

import json
import posixpath
import re
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from recombine.metrics import finite_difference_metric, log_volume
from recombine.page.document import MODULES, RUNNING, script
from recombine.page.model import Blobs, page_model
from recombine.page.training import PANEL_MODULES, WORKER_MODULES
from tests.page.decoders import EVERYONE, OURS, points, subject, trained, values_at

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "src" / "recombine" / "page" / "script"
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
needs_tools = pytest.mark.skipif(not (ROOT / "node_modules" / ".bin").is_dir(), reason="no npm install here")


def run(*words):
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@needs_node
def test_units():
    run("node", "--test", "tests/page/")


@needs_node
def test_the_joined_script_is_one_module(tmp_path):
    """No two modules give the same name to different things."""
    (tmp_path / "script.mjs").write_text(script(), encoding="utf-8")
    run("node", "--check", str(tmp_path / "script.mjs"))


@needs_node
@needs_tools
@pytest.mark.slow
def test_types_and_style():
    run("node_modules/.bin/eslint", "src/recombine/page", "tests/page")
    run("node_modules/.bin/tsc", "--project", "tsconfig.json")


@needs_node
@needs_tools
@pytest.mark.slow
def test_the_kernel_is_that_of_its_text():
    kernel = ROOT / "src" / "recombine" / "page" / "matmul.wasm"
    before = kernel.read_bytes()
    run("npm", "run", "--silent", "build")
    assert kernel.read_bytes() == before


def case(name, blobs, count=200):
    """A decoder as the page has it, beside torch's outputs at random points."""
    own = subject(name)
    positions = points(own, count)
    right = own.outputs(values_at(own.grid, positions)).flatten(1)
    return {
        "model": page_model(own, blobs, None), "factors": [asdict(factor) for factor in own.grid.factors],
        "positions": positions.tolist(), "outputs": right.tolist(),
    }  # fmt: skip


def answers(tmp_path, cases, blobs):
    """What the script says of each case."""
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    (tmp_path / "numbers.bin").write_bytes(blobs.content)
    lines = run("node", "tests/page/equality.js", str(tmp_path / "cases.json"), str(tmp_path / "numbers.bin"))
    return [json.loads(line) for line in lines.splitlines()]


@needs_node
@pytest.mark.parametrize("names", [EVERYONE[:1], pytest.param(EVERYONE, marks=pytest.mark.slow)], ids=["one", "all"])
def test_decoders_equal_torch(tmp_path, names):
    blobs = Blobs()
    with torch.random.fork_rng(devices=[]):
        cases = [case(name, blobs) for name in names]
    results = answers(tmp_path, cases, blobs)
    assert [result["name"] for result in results] == names
    assert all(result["translated"] for result in results)
    worst = {result["name"]: result["worst"] for result in results}
    assert max(worst.values()) < 1e-4, worst
    assert max(result["mismatch"] for result in results) < 1e-5
    for result in results:
        if result["name"] in OURS:
            compare_views(result["name"], result["surveys"])


@needs_node
def test_a_wrong_translation_is_noticed_in_the_page(tmp_path):
    blobs = Blobs()
    wrong = case(EVERYONE[0], blobs, 2)
    wrong["model"]["program"]["operations"] = [
        {**own, "f": "abs"} if own.get("f") == "relu" else own for own in wrong["model"]["program"]["operations"]
    ]
    (result,) = answers(tmp_path, [wrong], blobs)
    assert result["mismatch"] > 1e-3


def compare_views(name, surveys):
    """Metric and volume over the plane are those of `recombine.metrics`, and the map is that of the unit it names."""
    task, module = trained(name)
    activations = module.activations(task.codes(task.grid.points).float())
    assert set(surveys) == set(activations)
    for stage, activation in activations.items():
        features = activation.detach().flatten(1)
        right = finite_difference_metric(features, task.grid.shape)
        across_fastest = right.unflatten(0, task.grid.shape).transpose(0, 1).flatten(0, 1)
        entries = torch.tensor(surveys[stage]["metric"], dtype=torch.float64).reshape(-1, 3)
        ours = entries[:, [0, 1, 1, 2]].reshape(-1, 2, 2)
        assert (ours - across_fastest).abs().max() < 1e-4 * across_fastest.abs().max(), stage
        volumes = log_volume(ours), torch.tensor(surveys[stage]["volume"], dtype=torch.float64)
        curved = volumes[0] > volumes[0].max() - 4  # elsewhere a determinant is rounding
        assert torch.allclose(*(volume[curved] for volume in volumes), atol=1e-6), stage
        variances = features.var(0)
        unit = surveys[stage]["varying"]
        assert variances[unit] > 0.999 * variances.max(), stage
        column = features[:, unit].unflatten(0, task.grid.shape).T.flatten()
        assert torch.allclose(torch.tensor(surveys[stage]["map"]), column, atol=1e-4), stage


def test_modules_are_written_in_the_order_of_their_imports():
    everything = {path.relative_to(SCRIPT).with_suffix("").as_posix() for path in SCRIPT.rglob("*.js")}
    assert {*MODULES, *RUNNING, *PANEL_MODULES, *WORKER_MODULES} == everything
    for modules in (MODULES, RUNNING, PANEL_MODULES, WORKER_MODULES):
        for place, name in enumerate(modules):
            text = (SCRIPT / f"{name}.js").read_text(encoding="utf-8")
            for target in re.findall(r'^import .* from "(.*)\.js";$', text, re.MULTILINE):
                assert posixpath.normpath(posixpath.join(posixpath.dirname(name), target)) in modules[:place], name
        assert not re.search("^(import|export) ", script(modules), re.MULTILINE)
