"""The page's script under Node: its own tests, its linters, and equality with torch."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from recombine.page.blobs import Blobs
from recombine.page.document import MODULES, bare, script
from recombine.page.explore import _factor
from recombine.page.model import page_model
from tests.page.decoders import EVERYONE, points, subject, values_at

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
        "model": page_model(own, blobs, None), "factors": [_factor(factor) for factor in own.grid.factors],
        "positions": positions.tolist(), "outputs": right.tolist(),
    }  # fmt: skip


@needs_node
@pytest.mark.parametrize("names", [EVERYONE[:1], pytest.param(EVERYONE, marks=pytest.mark.slow)], ids=["one", "all"])
def test_decoders_equal_torch(tmp_path, names):
    blobs = Blobs()
    with torch.random.fork_rng(devices=[]):
        cases = [case(name, blobs) for name in names]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    (tmp_path / "numbers.bin").write_bytes(blobs.content)
    lines = run("node", "tests/page/equality.js", str(tmp_path / "cases.json"), str(tmp_path / "numbers.bin"))
    results = [json.loads(line) for line in lines.splitlines()]
    assert [name for name, _, _ in results] == names
    assert all(translated for _, translated, _ in results)
    assert max(worst for _, _, worst in results) < 1e-4, results


def test_modules_are_written_in_the_order_of_their_imports():
    assert {*MODULES, "types"} == {path.stem for path in SCRIPT.glob("*.js")}
    for place, name in enumerate(MODULES):
        text = (SCRIPT / f"{name}.js").read_text(encoding="utf-8")
        for line in text.splitlines():
            if line.startswith("import "):
                assert line.endswith('.js";'), "an import is one line"
                assert line.rpartition("/")[2].removesuffix('.js";') in MODULES[:place], line
    assert "\nimport " not in script()
    assert "\nexport " not in script()
    assert bare('import { a } from "./b.js";\nexport const c = 1;\n') == "const c = 1;\n"
