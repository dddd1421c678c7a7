"""The style of figures."""

import os
import subprocess
import sys

import matplotlib
from matplotlib import pyplot

from recombine.reproduction.panels import styled

NOTEBOOK = """
import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas

matplotlib.interactive(True)  # as that of IPython does when it is loaded
"""
FIRST_FIGURE = """
import matplotlib
from matplotlib import pyplot
from recombine.reproduction.panels import styled

with styled():
    pyplot.figure()
print(matplotlib.is_interactive())
"""


def test_a_style_ends_with_its_context():
    before = dict(matplotlib.rcParams)
    with styled():
        assert dict(matplotlib.rcParams) != before
        pyplot.close(pyplot.figure())
    assert dict(matplotlib.rcParams) == before


def test_a_notebook_shows_figures_after_the_first_one(tmp_path):
    (tmp_path / "notebook_backend.py").write_text(NOTEBOOK)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    environment = {**os.environ, "MPLBACKEND": "module://notebook_backend", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", FIRST_FIGURE], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "True"
