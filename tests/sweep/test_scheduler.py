"""Schedulers that are named wrongly, absent, or come back elsewhere; and a machine without Dask."""

import ast
import json
import pickle
import socket
import sys
from pathlib import Path

import pytest

from recombine.errors import InvalidValue, RecombineError, RunsFailed
from recombine.sweep import scheduler as schedulers
from recombine.sweep import train
from recombine.sweep.cluster_task import by_value
from recombine.sweep.scheduler import Scheduler
from tests.command import captured
from tests.small import small_spec

SMALL = "train --size 8 --decoder mlp --width 4 --depth 1 --steps 2 --samples 20 --device cpu"


@pytest.fixture
def free_address():
    """An address where nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(schedulers, "CONNECT_SECONDS", 0.5)


def test_without_dask_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(RecombineError, match=r"^scheduler: Dask is not installed; .*pip install distributed"):
        train(small_spec(), tmp_path / "store", scheduler="tcp://127.0.0.1:1")
    assert not (tmp_path / "store").exists()


def test_dask_is_imported_only_inside_functions():
    for path in Path(schedulers.__file__).parents[1].rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] in ("dask", "distributed")], path


@pytest.mark.parametrize("where", ["", "tcp://", 3, ["tcp://127.0.0.1:1"]])
def test_what_is_no_scheduler_is_refused(tmp_path, where):
    pytest.importorskip("distributed")
    with pytest.raises(InvalidValue, match=r"scheduler: .* allowed: an address as tcp://HOST:PORT"):
        train(small_spec(), tmp_path / "store", scheduler=where)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"address": 3}', '{"address": "nowhere"}', "[" * 100_000])
def test_a_file_that_no_scheduler_wrote_is_refused(tmp_path, content):
    pytest.importorskip("distributed")
    (tmp_path / "file.json").write_text(content)
    with pytest.raises(InvalidValue, match=r"scheduler_file: .* a file that 'dask scheduler --scheduler-file' wrote"):
        Scheduler(tmp_path / "file.json")


def test_a_scheduler_file_is_read_again_each_time(tmp_path):
    pytest.importorskip("distributed")
    path = tmp_path / "file.json"
    path.write_text(json.dumps({"address": "tcp://a:1"}))
    scheduler = Scheduler(str(path))
    path.write_text(json.dumps({"address": "tcp://b:2"}))
    assert scheduler.address() == "tcp://b:2"


def test_processes_and_a_scheduler_exclude_each_other(tmp_path):
    with pytest.raises(InvalidValue, match="processes: 2 is not allowed; allowed: nothing together with a scheduler"):
        train(small_spec(), tmp_path / "store", scheduler="tcp://127.0.0.1:1", processes=2)


def test_an_absent_scheduler_is_one_line(store_path, free_address, quick, capsys):
    pytest.importorskip("distributed")
    outcome = captured(f"{SMALL} --scheduler {free_address}", capsys)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert outcome.err.startswith(f"recombine: --scheduler: '{free_address}' is not allowed; allowed: one whose ")


def test_finished_runs_need_no_scheduler(tmp_path, free_address, quick):
    pytest.importorskip("distributed")
    train(small_spec(), tmp_path / "store", device="cpu")
    assert len(train(small_spec(), tmp_path / "store", scheduler=free_address)) == 1


def test_a_worker_without_this_package_reports_that_instead_of_dying(monkeypatch):
    cloudpickle = pytest.importorskip("cloudpickle")
    content = cloudpickle.dumps(by_value("run_packed"))
    monkeypatch.setitem(sys.modules, "recombine.sweep.cluster_task", None)
    sent = pickle.loads(content)
    with pytest.raises(ModuleNotFoundError):
        sent(b"")


def test_reproduce_trains_on_the_cluster(tmp_path, store_path, monkeypatch, capsys):
    seen = {}

    def train(specs, store, **settings):
        seen.update(settings)
        raise RunsFailed({"0123456789": "RuntimeError: broken"}, 4)

    monkeypatch.setattr("recombine.reproduction.reproduce.train", train)
    words = f"reproduce stripes --scheduler tcp://a:1 --device cpu --out {tmp_path / 'report'}"
    assert captured(words, capsys).code == 1
    assert (seen["scheduler"], seen["processes"], seen["device"]) == ("tcp://a:1", None, "cpu")
    outcome = captured(f"{words} --processes 2", capsys)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert outcome.err.startswith(
        "recombine: --processes: '2' is not allowed; allowed: nothing together with a scheduler"
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--scheduler localhost", "--scheduler: 'localhost' is not allowed; allowed: an address as tcp://HOST:PORT"),
        ("--scheduler tcp://a:1 --scheduler-file f", "--scheduler-file: 'f' is not allowed; allowed: nothing together"),
        ("--scheduler tcp://a:1 --device tpu", "--device: 'tpu' is not allowed"),
    ],
)
def test_mistakes_at_the_command_line(store_path, words, expected, capsys):
    outcome = captured(f"{SMALL.replace('--device cpu', '') if 'device' in words else SMALL} {words}", capsys)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert outcome.err.startswith(f"recombine: {expected}")
    assert not store_path.exists()
