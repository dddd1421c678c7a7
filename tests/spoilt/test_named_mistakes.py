"""Mistakes that new users made in Python, each one line that names the field and says what to write instead.

All calls are made in one process without the tests' own type checks, which would be faster to refuse.
"""

import json
import subprocess
import sys

import pytest

SETUP = """
import json, sys, tempfile
import numpy as np, torch, recombine as rc
from torch import nn
from recombine import metrics
from tests.spoilt.calls import MODULE, all_calls, gram, grid, held_out, network, randn, run, spec, store

nan, inf = float("nan"), float("inf")
mask = lambda *shape: torch.zeros(*shape, dtype=torch.bool)
measure = lambda **given: rc.diagnose(**{"module": MODULE, "grid": grid(), **given})
train = lambda specs, **given: rc.train(specs, store(), **{"device": "cpu", **given})
wrong = lambda name: type(name, (), {"__repr__": lambda self: 1 / 0})()

outcomes = {}
for name, line in json.load(sys.stdin).items():
    try:
        outcomes[name] = ["success", repr(eval(line))]
    except rc.RecombineError as error:
        outcomes[name] = [type(error).__name__, str(error)]
    except BaseException as error:
        outcomes[name] = ["raw " + type(error).__name__, str(error)]
json.dump(outcomes, sys.stdout)
"""

# The call, and what its one line must contain.
MISTAKES = {
    "a class among the specs": ("train([spec(), rc.RunSpec])", "specs[1]: "),
    "text for specs": ("train('cnn')", "specs: 'cnn'"),
    "members a fraction": ("train(spec(), members=2.5)", "members: 2.5 is not allowed; allowed: a whole number"),
    "members not at all": ("train(spec(), members=0)", "members: 0"),
    "processes as text": ("train(spec(), processes='2')", "processes: '2' is not allowed; allowed: a whole number"),
    "checkpoints never": ("train(spec(), checkpoint_seconds=nan)", "checkpoint_seconds: nan"),
    "watched by a text": ("train(spec(), watch='bar')", "watch: 'bar'"),
    "progress as text": ("train(spec(), progress='yes')", "progress: 'yes' is not allowed; allowed: True, False, auto"),
    "a folder of the hub as a number": ("run().save_pretrained(3)", "folder: 3 is not allowed; allowed: a path"),
    "a repository with a blank": ("run().push_to_hub('my model')", "repo_id: 'my model' is not allowed; allowed: a"),
    "a folder that is not there": ("rc.from_pretrained('./model')", "source: './model' is not allowed; allowed: a fol"),
    "a metric misspelt": ("measure(metrics=['ood'])", "metrics: 'ood' is not allowed; allowed: error, id_error"),
    "a class to a callback": ("rc.DiagnosisCallback(grid())(nn.Linear)", "module: "),
    "a store of bytes": ("rc.train(spec(), b'runs', device='cpu')", "store: b'runs' is not allowed; allowed: a path"),
    "a device of torch": ("train(spec(), device=torch.device('cpu'))", "auto, cpu, cuda"),
    "a number of seeds": ("spec().seeds(4)", "seeds: 4 is not allowed; allowed: several whole numbers, as range(4)"),
    "seeds as text": ("spec().seeds('0123')", "seeds: '0123'"),
    "a seed that is no number": ("spec().seeds([1, 'x'])", "seeds[1]: 'x'"),
    "a text among runs": ("rc.summarize([run(), 'abc'])", "runs[1]: 'abc'"),
    "a study by name": ("rc.reproduce('depth', rc.PRESETS['quick'], store(), tempfile.mkdtemp())", "studies: 'depth'"),
    "a preset by name": ("rc.reproduce([], 'quick', store(), tempfile.mkdtemp())", "preset: 'quick'"),
    "specs of an ensemble": ("rc.Ensemble([spec(), 3], torch.device('cpu'))", "specs[1]: 3"),
    "a device by name": ("rc.Ensemble([spec()], 'cpu')", "device: 'cpu' is not allowed; allowed: a torch.device"),
    "a grid as dict": ("measure(grid={'x': [0, 1]})", "grid: {'x': [0, 1]} is not allowed; allowed: a FactorGrid, or"),
    "a run for a module": ("measure(module=run())", "run.module(), with grid=run.spec.task.grid"),
    "a spec for a module": ("measure(module=spec())", "spec.module()"),
    "a class for a module": ("measure(module=nn.Linear)", "module: "),
    "geometry misspelt": ("measure(geometry='exakt')", "geometry: 'exakt' is not allowed; allowed: auto, exact, diff"),
    "background NaN": ("measure(background=nan)", "background: nan"),
    "background infinite": ("measure(background=inf, holdout=held_out())", "background: inf"),
    "memory a fraction": ("measure(memory=1.5)", "memory: 1.5"),
    "a mask of another shape": ("measure(holdout=mask(1, 9))", "holdout: (1, 9) is not allowed; allowed: a boolean"),
    "a transposed mask": ("measure(grid='x=0:2,y=0:1', holdout=mask(2, 3))", "of shape (3, 2) or (6,)"),
    "a mask of numbers": ("measure(holdout=torch.zeros(3, 3))", "a boolean mask over the grid"),
    "targets NaN": ("measure(targets=torch.full((9, 3), nan))", "targets: 'NaN or infinity'"),
    "targets infinite": ("measure(targets=np.full((9, 3), inf))", "targets: 'NaN or infinity'"),
    "targets of no axis": ("measure(targets=np.array(3.0))", "9 rows, one per grid point"),
    "targets too few": ("measure(targets=torch.zeros(8, 3))", "9 rows, one per grid point"),
    "targets as text": ("measure(targets=np.array(['a'] * 9))", "an array of real numbers"),
    "targets complex": ("measure(targets=torch.zeros(9, 3, dtype=torch.complex64))", "real numbers"),
    "encoding a number": ("measure(encode=3)", "encode: 3"),
    "encoding without rows": ("measure(encode=lambda values: values.sum())", "a row for each point"),
    "encoding that raises": ("measure(encode=lambda values: {}['key'])", "encode: "),
    "one stage that is not there": ("measure(stages='conv')", "stages: 'conv'"),
    "averaging misspelt": ("metrics.mean_factorization(randn(9, 2, 2), 'point')", "averaging: 'point' is not allowed"),
    "polarity misspelt": ("metrics.extreme_pixel(randn(3, 4), 'black')", "polarity: 'black' is not allowed; allowed:"),
    "weight misspelt": ("metrics.interaction_weights(gram(), (3, 3), 'abs')", "weight: 'abs' is not allowed; allowed:"),
    "kernel misspelt": ("metrics.gram_matrix(randn(9, 4), 'cosin')", "kernel: 'cosin' is not allowed; allowed: cosine"),
    "theory misspelt": ("metrics.theoretical_kernel('bin', randn(2, 2), randn(2, 2))", "kernel: 'bin'"),
    "vectors misspelt": ("rc.LowRankEmbedding((3,), (4, 4), vectors='units')", "vectors: 'units' is not allowed; all"),
    "a shape of another grid": ("metrics.neuron_tuning(randn(9, 4), (3, 4))", "grid: (3, 4)"),
    "points of other numbers": ("metrics.probe_scores(randn(9, 4), randn(8, 2))", "values: Tensor torch.float32 (8,"),
    "an array for a tensor": ("metrics.volume_element(np.ones((9, 2, 2)))", "metric: ndarray float64 (9, 2, 2)"),
    "ridge NaN": ("metrics.LinearProbe(nan)", "ridge: nan"),
    "spacing of zero": ("metrics.finite_difference_metric(randn(9, 4), (3, 3), (0.0, 1.0))", "spacing: (0.0, 1.0)"),
    "factor bound NaN": ("rc.Factor('x', nan, 1, 2)", "x.low: nan"),
    "factor bound infinite": ("rc.Factor('x', 0, inf, 2)", "x.high: inf"),
    "factor count a fraction": ("rc.Factor('x', 0, 1, 2.5)", "x.count: 2.5 is not allowed; allowed: a whole number"),
    "factor name with a blank": ("rc.Factor('my x', 0, 1, 2)", "factor: 'my x'"),
    "factor values all equal": ("rc.Factor('x', 1e16, 1e16 + 2, 9)", "x.high: 1.0000000000000002e+16"),
    "a billion values": ("rc.Factor('x', 0, 10**9, 10**9 + 1)", "at most 10000000"),
    "a billion points": ("measure(grid='x=0:31622,y=0:31622')", "grid: 1000014129 is not allowed; allowed: at most 10"),
    "bounds out of this world": ("measure(grid='x=0:1e300')", "grid: 'x=0:1e300'"),
    "pairs that fill the machine": ("measure(grid='x=0:2999,y=0:2999', points=10**7)", "matrices of all pairs need"),
    "part of a point": ("measure(points=2.5)", "points: 2.5 is not allowed; allowed: a whole number, at least 1"),
    "targets that are none": ("measure(targets=5)", "targets: 5 is not allowed; allowed: a tensor or array"),
    "a task of a hundred million": ("rc.BumpTask(size=512, brightness=512)", "grid: 134217728"),
    "JSON without an end": ("rc.RunSpec.from_json('[' * 200_000)", "allowed: JSON"),
    "JSON with odd names": ("""rc.Recipe.from_json('{"self": 1}')""", "self: 1"),
    "a record of numbers": ("rc.RunSpec(recipe={1: 2})", "RunSpec: "),
    "something without a repr": ("train([wrong('Odd')])", "specs[0]: Odd object"),
    "a number of many digits": ("train(spec(), members=-(10**5000))", "members: int object"),
}  # fmt: skip

# What used to be refused or wrong, and now works.
RIGHT = {
    "a generator of specs": ("[r.key for r in train(s for s in [spec()])] == [spec().digest]", "True"),
    "a lone spec": ("[r.key for r in train(spec())] == [spec().digest]", "True"),
    "an iterator of runs": ("rc.summarize(iter([run()]))[0].seeds", "1"),
    "a lone run": ("rc.summarize(run())[0].seeds", "1"),
    "a generator for an ensemble": ("len(rc.Ensemble((s for s in [spec()]), torch.device('cpu')))", "1"),
    "a generator of seeds": ("[s.seed for s in spec().seeds(i for i in (3, 5))]", "[3, 5]"),
    "seeds of numpy": ("[s.seed for s in spec().seeds(np.arange(2))]", "[0, 1]"),
    "a generator of factors": ("rc.FactorGrid(rc.Factor(n, 0, 1, 2) for n in 'ab').names", "('a', 'b')"),
    "targets of numpy": ("measure(targets=np.zeros((9, 3), dtype='>f4'))['error'].shape", "(3, 3)"),
    "a flat mask": ("int(measure(holdout=held_out())['held_out'].sum())", "4"),
    "a lone stage": ("measure(stages='0')['stage'].values.tolist()", "['input', '0', 'output']"),
}


@pytest.fixture(scope="module")
def outcomes():
    lines = {name: line for name, (line, _) in (MISTAKES | RIGHT).items()}
    done = subprocess.run(
        [sys.executable, "-c", SETUP], input=json.dumps(lines), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_one_line(name, outcomes):
    kind, message = outcomes[name]
    assert kind in ("InvalidValue", "DeviceError", "StoreError"), message
    assert MISTAKES[name][1] in message
    assert "allowed: " in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_reasonable_works(name, outcomes):
    assert outcomes[name] == ["success", RIGHT[name][1]]
