"""`recombine --version` and what it adds for bug reports."""

import importlib.metadata
import os
import platform

import pytest
import torch

from recombine.cli import version
from recombine.kernels.cpp import build
from recombine.version import __version__
from tests.command import captured


def report(capsys):
    """The lines of a report by name."""
    outcome = captured("--version --verbose", capsys)
    assert outcome.code == 0
    return dict(line.split(": ", 1) for line in outcome.out.splitlines())


def test_the_version_alone_is_one_line(capsys):
    assert captured("--version", capsys) == (0, f"{__version__}\n", "")


def test_a_report_names_versions_devices_and_folders(capsys, store_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("RECOMBINE_") and name != "RECOMBINE_STORE"]:
        monkeypatch.delenv(name)  # other tests leave some
    lines = report(capsys)
    assert lines["recombine"].startswith(f"{__version__} (")
    assert platform.python_version() in lines["python"]
    assert lines["torch"] == importlib.metadata.version("torch")
    assert lines["devices"].startswith(f"cpu ({torch.get_num_threads()} threads)")
    assert lines["store"] == f"{store_path} (none yet)"
    assert lines["environment"] == f"RECOMBINE_STORE={store_path}"
    assert {"platform", "numpy", "CUDA", "compiler", "kernels", "cache", "triton", "distributed"} <= set(lines)
    assert "pytest" not in lines


def test_nothing_of_the_users_environment_is_shown(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RECOMBINE_STORE", str(tmp_path / "runs"))
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    lines = report(capsys)
    assert lines["store"] == "~/runs (none yet)"
    assert "hunter2" not in str(lines)


def test_what_is_missing_is_said(capsys, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1 / 0)
    monkeypatch.setattr(version.metadata, "version", _missing)
    lines = report(capsys)
    assert lines["compiler"] == "no C++ compiler (no-such-compiler)"
    assert lines["devices"] == "unknown (ZeroDivisionError: division by zero)"
    assert lines["torch"] == "not installed"


def test_a_package_without_metadata_is_said(capsys, monkeypatch):
    monkeypatch.setattr(version.metadata, "requires", _missing)
    lines = report(capsys)
    assert lines["libraries"] == "unknown (recombine is not installed, only imported)"
    assert lines["torch"] == importlib.metadata.version("torch")


def test_why_there_are_no_kernels_is_said(capsys, monkeypatch):
    monkeypatch.setattr(build, "library_or_reason", lambda: "no C++ compiler (c++)")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert report(capsys)["kernels"] == "cpu: off (no C++ compiler (c++))"


@pytest.mark.parametrize("words", ["--version train", "--version --verbos"])
def test_a_mistake_is_one_line(words, capsys):
    outcome = captured(words, capsys)
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1


def _missing(name):
    raise importlib.metadata.PackageNotFoundError(name)
