"""Weights in the hub's layout: the same bits, nothing run, and one line for every folder that is not ours."""

import doctest
import json
import shutil
import struct
import subprocess
import sys
from typing import Literal

import numpy as np
import pytest
import torch

import recombine as rc
from recombine.decoders import DECODERS, MLP
from recombine.errors import InvalidValue, RecombineError
from recombine.store import pretrained
from recombine.store.pretrained import CARD, CONFIG, WEIGHTS, ModelConfig, from_pretrained
from tests.command import captured
from tests.small import labelled_images, small_spec
from tests.store.test_readers import everything


def stored(path, spec, score=0.25):
    """A run in a store with the weights that a spec begins with; its training is another file's."""
    names = ["id_mse", "ood_mse", "id_over_blank", "ood_over_blank", "id_accuracy", "ood_accuracy"]
    result = {
        "status": "done", "scores": dict.fromkeys(names, score) | {"ood_mse": None}, "steps": 12,
        "provenance": {"recombine": "0.1.0", "torch": "2.13.0", "commit": "c0ffee", "finished": 1.0},
    }  # fmt: skip
    weights = {name: tensor.numpy() for name, tensor in spec.module().state_dict().items()}
    return rc.Store(path).save(spec.digest, spec.to_json(), result, weights, {"error": np.ones(4)})


@pytest.fixture
def run(tmp_path):
    return stored(tmp_path / "store", small_spec("mlp", seed=3))


@pytest.fixture
def folder(run, tmp_path):
    return run.save_pretrained(tmp_path / "model")


def set_field(folder, path, value):
    """Change one field of a folder's configuration."""
    fields = json.loads((folder / CONFIG).read_text())
    *names, last = path.split(".")
    inner = fields
    for name in names:
        inner = inner[name]
    inner[last] = value
    (folder / CONFIG).write_text(json.dumps(fields))


TOKENS = ("coordinate", "transformer")
"""Decoders whose first build without memory makes torch load seconds' worth of its own modules."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind in TOKENS else kind for kind in DECODERS]
)
def test_every_decoder_loads_back_to_the_same_bits(tmp_path, kind):
    run = stored(tmp_path / "store", small_spec(kind))
    module, again = run.module(), from_pretrained(run.save_pretrained(tmp_path / "model"))
    assert type(again) is type(module)
    assert not again.training
    before, after = module.state_dict(), again.state_dict()
    assert list(before) == list(after)
    assert all(before[name].numpy().tobytes() == after[name].numpy().tobytes() for name in before)
    inputs = run.spec.task.examples(run.spec.task.grid.points[:5]).inputs
    assert torch.equal(module(inputs), again(inputs))


def test_loading_leaves_the_random_state_as_it_was(folder):
    before = torch.random.get_rng_state()
    from_pretrained(folder)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_configuration_says_how_it_was_trained(run, folder):
    config = ModelConfig.from_pretrained(str(folder))
    assert config.spec == run.spec
    assert config.fields["key"] == run.key
    assert config.fields["architectures"] == ["MLP"]
    assert config.fields["versions"] == {"recombine": "0.1.0", "torch": "2.13.0"}
    assert config.scores["id_mse"] == 0.25
    assert np.isnan(config.scores["ood_mse"])


def test_files_are_those_of_the_hub(folder):
    assert sorted(path.name for path in folder.iterdir()) == [CARD, CONFIG, WEIGHTS]
    content = (folder / WEIGHTS).read_bytes()
    header = json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])
    assert header["__metadata__"] == {"format": "pt"}


def test_a_folder_is_written_again(run, folder):
    before = everything(folder)
    (folder / WEIGHTS).write_bytes(b"old")
    assert run.save_pretrained(folder) == folder
    assert everything(folder) == before


def test_the_card_has_metadata_that_the_hub_reads(folder):
    repocard = pytest.importorskip("huggingface_hub.repocard")
    card = repocard.ModelCard.load(folder / CARD)
    assert card.data.library_name == "recombine"
    assert "mlp" in card.data.tags
    metrics = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert metrics == dict.fromkeys(["id_mse", "id_over_blank", "ood_over_blank", "id_accuracy", "ood_accuracy"], 0.25)
    assert "rc.from_pretrained" in card.text


@pytest.fixture
def own_decoder(monkeypatch):
    """A decoder that a module of a user's own registers."""

    class Own(MLP):
        kind: Literal["own"] = "own"

    Own.__module__ = "mycode.decoders"
    DECODERS.register(Own)
    yield Own
    DECODERS.unregister("own")


def test_parts_of_ones_own_name_the_module_to_import(own_decoder, tmp_path):
    spec = small_spec("mlp").replace(decoder=own_decoder(width=4, depth=1))
    folder = stored(tmp_path / "store", spec).save_pretrained(tmp_path / "model")
    assert ModelConfig.from_pretrained(folder).fields["modules"] == ["mycode.decoders"]
    assert "\nimport mycode.decoders " in (folder / CARD).read_text()
    assert type(from_pretrained(folder)) is type(spec.module())
    own_decoder.__module__ = "__main__"
    run = rc.Store(tmp_path / "store").find(spec.digest)
    assert "register the classes" in (run.save_pretrained(tmp_path / "script") / CARD).read_text()


def test_a_part_that_nobody_registered_asks_for_its_module(folder):
    set_field(folder, "spec.decoder.kind", "own")
    with pytest.raises(InvalidValue, match="--import"):
        from_pretrained(folder)


def test_images_of_ones_own_need_not_be_at_hand(tmp_path, monkeypatch):
    """The decoder's ends are in the configuration: no file that a spec names is opened."""
    task = rc.ArrayTask(**labelled_images(2))
    run = stored(tmp_path / "store", rc.RunSpec(task=task, decoder="mlp:width=4:depth=1"))
    folder = run.save_pretrained(tmp_path / "model")
    set_field(folder, "spec.task.data", "0" * 20)
    assert from_pretrained(folder)(torch.zeros(2, sum(task.code_sizes))).shape == (2, 6, 6)
    with pytest.raises(RecombineError, match="data"):
        ModelConfig.from_pretrained(folder).spec  # noqa: B018


# -- folders of strangers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("model_type", "bert", "model_type"),
        ("format", 2, "format"),
        ("spec", [1], "spec"),
        ("spec.decoder", None, "decoder"),
        ("spec.decoder.kind", "os.system", "decoder"),
        ("spec.decoder.depth", 10**9, "depth"),
        ("spec.decoder.width", 2**16, r"model.safetensors: stages\.\S+"),
        ("spec.decoder.extra", "x", "extra"),
        ("interface", None, "interface"),
        ("interface.code_sizes", [2**40], "code_sizes"),
        ("interface.code_sizes", 16, "code_sizes"),
        ("interface.code_sizes", [True], "code_sizes"),
        ("interface.code_sizes", [], "code_sizes"),
        ("interface.image_shape", [2**20, 2**20], "image_shape"),
        ("interface.image_shape", [8], "image_shape"),
        ("interface.image_shape", [True, 8], "image_shape"),
    ],
)
def test_a_configuration_that_does_not_fit_is_one_line(folder, path, value, message):
    set_field(folder, path, value)
    with pytest.raises(RecombineError, match=message) as refusal:
        from_pretrained(folder)
    assert "\n" not in str(refusal.value)


@pytest.mark.slow
def test_constants_of_any_size_are_not_allocated(tmp_path):
    """The positions of pixels are no weights: only the configuration says how many there are."""
    folder = stored(tmp_path / "store", small_spec("coordinate")).save_pretrained(tmp_path / "model")
    set_field(folder, "interface.image_shape", [2**14, 2**14])
    with pytest.raises(InvalidValue, match="image_shape"):
        from_pretrained(folder)


def test_weights_of_another_type_are_refused(run, folder):
    from recombine.store.names import pack

    (folder / WEIGHTS).write_bytes(pack({name: array.astype("float64") for name, array in run.weights().items()}))
    with pytest.raises(InvalidValue, match=r"float32.*float64"):
        from_pretrained(folder)
    (folder / WEIGHTS).write_bytes(pack(run.weights() | {"more": np.zeros(2)}))
    with pytest.raises(InvalidValue, match="more"):
        from_pretrained(folder)


def test_scores_that_are_no_numbers_are_refused(folder):
    set_field(folder, "scores.id_mse", "good")
    with pytest.raises(InvalidValue, match="scores"):
        ModelConfig.from_pretrained(folder).scores  # noqa: B018


# -- the hub --------------------------------------------------------------------------------------------------------


class FakeHub:
    """The functions of `huggingface_hub` that are called, on a folder."""

    def __init__(self, folder):
        self.folder, self.calls = folder, []

    def HfApi(self, **settings):
        self.calls.append(("HfApi", settings))
        return self

    def create_repo(self, repo_id, *, private, exist_ok):
        from huggingface_hub import RepoUrl

        assert exist_ok
        self.calls.append(("create_repo", repo_id, private))
        return RepoUrl(f"https://huggingface.co/{repo_id}")

    def upload_folder(self, *, repo_id, folder_path, revision, commit_message):
        self.calls.append(("upload_folder", repo_id, revision, commit_message))
        shutil.copytree(folder_path, self.folder / repo_id)

    def snapshot_download(self, repo_id, *, revision, allow_patterns):
        from huggingface_hub.errors import LocalEntryNotFoundError

        self.calls.append(("snapshot_download", repo_id, revision, tuple(allow_patterns)))
        if not (self.folder / repo_id).exists():
            raise LocalEntryNotFoundError("404 Client Error.\n\nRepository Not Found")
        return str(self.folder / repo_id)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    library = pytest.importorskip("huggingface_hub")
    fake = FakeHub(tmp_path / "hub")
    monkeypatch.setattr(library, "HfApi", fake.HfApi)
    return fake


def test_a_run_goes_to_the_hub_and_comes_back(run, hub):
    address = run.push_to_hub("ann/bumps", private=True, token="secret")
    assert address == "https://huggingface.co/ann/bumps"
    assert hub.calls[0][1]["token"] == "secret"
    assert hub.calls[1:] == [
        ("create_repo", "ann/bumps", True), ("upload_folder", "ann/bumps", None, f"Upload run {run.key}"),
    ]  # fmt: skip
    module = from_pretrained("ann/bumps", revision="main")
    assert hub.calls[-1] == ("snapshot_download", "ann/bumps", "main", (CONFIG, WEIGHTS))
    assert all(torch.equal(value, module.state_dict()[name]) for name, value in run.module().state_dict().items())
    config = ModelConfig.from_pretrained("ann/bumps")
    assert config.spec == run.spec
    assert hub.calls[-1][-1] == (CONFIG,)
    assert config.module().state_dict().keys() == module.state_dict().keys()


def test_what_the_hub_refuses_is_one_line(hub):
    with pytest.raises(InvalidValue, match=r"source.*LocalEntryNotFoundError") as refusal:
        from_pretrained("ann/none")
    assert "\n" not in str(refusal.value)


@pytest.mark.slow
def test_the_hubs_own_library_pushes_and_pulls(tmp_path):
    pytest.importorskip("huggingface_hub")
    words = [sys.executable, "-m", "tests.store.hub_endpoint", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert "RepositoryNotFoundError" in outcome.pop("none")
    assert outcome == {"address": "ann/bumps", "files": [CARD, CONFIG, WEIGHTS], "same": True, "spec": True}


@pytest.mark.parametrize("name", ["", "a/b/c", "../up", "/none", "a b", "-x\n", ".", "~/model", "a/.."])
def test_names_that_are_paths_never_reach_the_hub(name, hub, run):
    with pytest.raises(InvalidValue, match="source"):
        from_pretrained(name)
    with pytest.raises(InvalidValue, match="repo_id"):
        run.push_to_hub(name)
    assert not hub.calls


def test_without_the_library_one_line_says_what_to_install(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for call in (lambda: run.push_to_hub("ann/bumps"), lambda: from_pretrained("ann/bumps")):
        with pytest.raises(RecombineError, match="pip install huggingface_hub"):
            call()


def test_examples():
    outcome = doctest.testmod(pretrained)
    assert outcome.attempted > 5
    assert not outcome.failed


# -- the command ----------------------------------------------------------------------------------------------------


def test_a_run_is_exported_in_the_layout(run, tmp_path, capsys):
    store = ["--store", str(run.path.parents[1])]
    code, out, _ = captured(
        ["runs", "export", tmp_path / "out", run.key[:6], "--layout", "huggingface", *store], capsys
    )
    assert (code, out) == (0, f"1 run exported to {tmp_path / 'out'}\n")
    assert everything(tmp_path / "out").keys() == {tmp_path / "out" / name for name in (CARD, CONFIG, WEIGHTS)}
    assert from_pretrained(tmp_path / "out").stage_names == run.module().stage_names


def test_the_layout_holds_one_run(run, tmp_path, capsys):
    stored(run.path.parents[1], small_spec("mlp", seed=4))
    words = ["runs", "export", tmp_path / "out", "--layout", "huggingface", "--store", run.path.parents[1]]
    code, _, err = captured(words, capsys)
    assert code == 2
    assert "one run" in err
    code, _, err = captured([*words[:2], tmp_path / "out.csv", run.key, *words[3:]], capsys)
    assert (code, "a directory" in err) == (2, True)
    assert not (tmp_path / "out").exists()
