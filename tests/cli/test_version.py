"""`recombine --version` and what it adds for bug reports."""

import importlib.metadata
import platform

from recombine.version import __version__
from tests.command import captured


def test_the_version_alone_is_one_line(capsys):
    assert captured("--version", capsys) == (0, f"{__version__}\n", "")


def test_a_report_names_versions_devices_and_folders_and_no_secrets(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RECOMBINE_STORE", str(tmp_path / "runs"))
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    outcome = captured("--version --verbose", capsys)
    assert outcome.code == 0
    lines = dict(line.split(": ", 1) for line in outcome.out.splitlines())
    assert lines["recombine"].startswith(f"{__version__} (")
    assert platform.python_version() in lines["python"]
    assert lines["torch"] == importlib.metadata.version("torch")
    assert lines["devices"].startswith("cpu")
    assert lines["store"] == "~/runs"
    assert "RECOMBINE_STORE=~/runs" in lines["environment"]
    assert "kernels on cpu" in lines
    assert "hunter2" not in outcome.out
