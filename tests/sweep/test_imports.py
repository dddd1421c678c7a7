"""Child processes that cannot import what the parent has: the cause and the remedy in one line."""

import subprocess
import sys

import pytest

PART = """
from typing import Literal
from torch import nn
from recombine.decoders import DECODERS, DecoderSpec, StagedDecoder
from recombine.decoders.base import ToImage

class Tiny(DecoderSpec):
    kind: Literal["tiny"] = "tiny"
    def build(self, interface):
        pixels = nn.Linear(interface.code_size, interface.pixels)
        return StagedDecoder({"pixels": pixels, "output": ToImage(interface.image_shape)})
DECODERS.register(Tiny)
"""
TRAIN = """
import recombine as rc
task = rc.BumpTask(size=6, training="draws:8")
specs = rc.RunSpec(task=task, decoder=decoder, recipe=rc.Recipe(steps=2, batch=4)).seeds(range(2))
print(len(rc.train(specs, "store", device="cpu", processes=2)))
"""


def guarded(text):
    return 'if __name__ == "__main__":\n' + "\n".join(f"    {line}" for line in text.splitlines())


INSIDE = "def make():\n" + "\n".join(f"    {line}" for line in PART.splitlines()) + "\n    return Tiny\n"
HIDDEN = 'import sys\nsys.path.insert(0, "hidden")\nimport part\nsys.path.pop(0)\n'
GUARD = 'if __name__ == "__main__":'
SCRIPTS = {
    "unguarded": ('decoder = "mlp:4:1"\n' + TRAIN, "processes: 2 is not allowed; allowed: 1, or a script that does"),
    "class under the guard": (guarded(PART + "\ndecoder = Tiny()" + TRAIN), "Can't get attribute 'Tiny'"),
    "class in a function": (INSIDE + guarded("decoder = make()()" + TRAIN), "Can't pickle local object"),
    "module off the path": (guarded(HIDDEN + "decoder = part.Tiny()" + TRAIN), "No module named 'part'"),
}


def run(folder, script, **given):
    words = [sys.executable, "-"] if script is None else [sys.executable, script]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120, check=False, **given)


LONG = {"module off the path", "class in a function", "class under the guard"}
"""Scripts that fail in the way of another one."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in SCRIPTS])
def test_the_cause_and_the_remedy_are_named(name, tmp_path):
    script, expected = SCRIPTS[name]
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "part.py").write_text(PART)
    (tmp_path / "script.py").write_text(script)
    done = run(tmp_path, "script.py")
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("recombine.errors."), done.stderr
    assert expected in last
    assert GUARD in last
    assert "Process SpawnProcess" not in done.stderr, "the child's own traceback"


def test_a_script_from_a_pipe_is_refused_before_children_start(tmp_path):
    done = run(tmp_path, None, input=guarded('decoder = "mlp:4:1"' + TRAIN))
    assert "processes: 2 is not allowed; allowed: 1, or a script in a file" in done.stderr.splitlines()[-1]
    assert done.stderr.count("Traceback") == 1


@pytest.mark.slow
def test_a_class_of_the_script_is_found(tmp_path):
    (tmp_path / "script.py").write_text(PART + guarded("decoder = Tiny()" + TRAIN))
    done = run(tmp_path, "script.py")
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
