"""Archives: what goes in comes out, and nothing of a hostile one ever reaches a disk."""

import io
import os
import pickle
import random
import tarfile
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recombine.errors import RecombineError
from recombine.store import Store
from recombine.store.archives import read_archive, write_archive
from tests.command import captured, run
from tests.store.saving import saved


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("source") / "store")
    for seed in range(3):
        saved(store, seed=seed)
    return store


@pytest.fixture(scope="module")
def archive(source):
    path = source.path.parent / "runs.tar"
    write_archive(path, source.runs())
    return path


def everything(folder):
    """Every path below a folder, with what is in it."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def test_what_goes_in_comes_out(source, archive, tmp_path, capsys):
    assert read_archive(archive, Store(tmp_path / "other")) == [run.key for run in source.runs()]
    for one in source.runs():
        other = Store(tmp_path / "other").run(one.key)
        assert not other.problems()
        assert {name: (one.path / name).read_bytes() for name in os.listdir(one.path)} == {
            name: (other.path / name).read_bytes() for name in os.listdir(other.path)
        }
    done = captured(["runs", "import", archive, "--store", tmp_path / "other"], capsys)
    assert done.code == 0
    assert "3 runs imported" in done.out
    assert "3 were there already" in done.out


def test_the_same_runs_give_the_same_bytes(source, archive, tmp_path, capsys):
    assert run("runs", "export", tmp_path / "again.tar", "--store", source.path) == 0
    write_archive(tmp_path / "third.tar", sorted(source.runs(), key=lambda run: run.key))
    assert (tmp_path / "again.tar").read_bytes() == (tmp_path / "third.tar").read_bytes()
    assert len(archive.read_bytes()) == len((tmp_path / "again.tar").read_bytes())


def entries(archive):
    with tarfile.open(archive) as tar:
        return [(member, tar.extractfile(member).read()) for member in tar.getmembers()]


def member(name, content=b"", kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(content), kind, link
    return info, content


def retold(pairs, change):
    """Entries with the content of one of them replaced, and its size."""
    out = []
    for info, content in pairs:
        new = change(info.name, content)
        info = tarfile.TarInfo(info.name)
        info.size = len(new)
        out.append((info, new))
    return out


class Hostile:
    """A pickle that would write a file."""

    def __reduce__(self):
        return (os.system, ("touch /tmp/recombine-was-here",))


DEEP = b"[" * 10**6 + b"]" * 10**6
KEY = "0123456789abcdef0123"
ADDED = {
    "zip slip": lambda key: member("../../outside", b"x"),
    "absolute": lambda key: member("/tmp/outside", b"x"),
    "slip after a key": lambda key: member(f"{key}/../../outside", b"x"),
    "key as a folder": lambda key: member(f"{key}/spec.json/x", b"x"),
    "link out": lambda key: member(f"{KEY}/spec.json", kind=tarfile.SYMTYPE, link="/etc/passwd"),
    "hard link": lambda key: member(f"{KEY}/spec.json", kind=tarfile.LNKTYPE, link="/etc/passwd"),
    "device": lambda key: member(f"{KEY}/spec.json", kind=tarfile.CHRTYPE),
    "pipe": lambda key: member(f"{KEY}/spec.json", kind=tarfile.FIFOTYPE),
    "folder": lambda key: member(KEY, kind=tarfile.DIRTYPE),
    "twice": lambda key: member(f"{key}/spec.json", b"{}"),
    "foreign file": lambda key: member(f"{key}/notes.txt", b"x"),
    "long name": lambda key: member("a" * 5000, b"x"),
    "markup": lambda key: member("<script>alert(1)</script>", b"x"),
    "sql": lambda key: member("'; DROP TABLE heads; --", b"x"),
    "right to left": lambda key: member("\u202egnp.exe", b"x"),
    "half a run": lambda key: member(f"{KEY}/spec.json", b"{}"),
    "upper case": lambda key: member(f"{key.upper()}X/spec.json", b"{}"),
    "no name": lambda key: member("", b"x"),
}  # fmt: skip
CHANGED = {
    "pickled weights": ("weights.safetensors", lambda content: pickle.dumps(Hostile())),
    "pickled spec": ("spec.json", lambda content: pickle.dumps(Hostile())),
    "deep spec": ("spec.json", lambda content: DEEP),
    "deep result": ("result.json", lambda content: DEEP),
    "deep manifest": ("manifest.json", lambda content: DEEP),
    "NaN in the spec": ("spec.json", lambda content: content.replace(b'"lr":0.001', b'"lr":NaN')),
    "infinity in the spec": ("spec.json", lambda content: content.replace(b'"lr":0.001', b'"lr":Infinity')),
    "no spec": ("spec.json", lambda content: b""),
    "a list for a spec": ("spec.json", lambda content: b"[1, 2]"),
    "a text for a manifest": ("manifest.json", lambda content: b'"x"'),
    "other bytes": ("arrays.safetensors", lambda content: content[:-1] + b"\x01"),
    "cut short": ("weights.safetensors", lambda content: content[:-1]),
    "no UTF-8": ("spec.json", lambda content: b"\xff\xfe" + content),
}


def resealed(pairs, key, change):
    """A run whose manifest fits the changed files: what a forger would make."""
    import hashlib

    from recombine.store.run import FILES, MANIFEST, manifest_text

    own = {info.name.split("/")[1]: content for info, content in pairs if info.name.startswith(key)}
    own = {name: change(name, content) for name, content in own.items() if name != MANIFEST}
    digests = {name: hashlib.sha256(own[name]).hexdigest() for name in FILES}
    return [member(f"{key}/{MANIFEST}", manifest_text(key, digests).encode())] + [
        member(f"{key}/{name}", content) for name, content in own.items()
    ]


def refused(tmp_path, content):
    """Nothing is written, and the error is one line."""
    path = tmp_path / "hostile.tar"
    path.write_bytes(content)
    store = Store(tmp_path / "store")
    before = everything(tmp_path)
    with pytest.raises(RecombineError, match="archive") as caught:
        read_archive(path, store)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 1000
    assert everything(tmp_path) == before
    assert not os.path.exists("/tmp/recombine-was-here")


def written(pairs):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for info, own in pairs:
            tar.addfile(info, io.BytesIO(own))
    return content.getvalue()


@pytest.mark.parametrize("case", ADDED)
def test_an_entry_that_is_no_file_of_a_run_refuses_all(case, archive, tmp_path):
    pairs = entries(archive)
    refused(tmp_path, written([*pairs, ADDED[case](pairs[0][0].name.split("/")[0])]))


@pytest.mark.parametrize("case", CHANGED)
def test_a_run_that_is_not_as_it_was_written_refuses_all(case, archive, tmp_path):
    name, change = CHANGED[case]
    pairs = entries(archive)
    key = pairs[0][0].name.split("/")[0]
    edited = retold(pairs, lambda path, content: change(content) if path == f"{key}/{name}" else content)
    refused(tmp_path, written(edited))


@pytest.mark.parametrize("case", [case for case, (name, _) in CHANGED.items() if name in ("spec.json", "result.json")])
def test_a_forged_run_that_is_no_run_refuses_all(case, archive, tmp_path):
    """With a manifest that fits. Weights are a forger's word, and data: they run nothing."""
    name, change = CHANGED[case]
    pairs = entries(archive)
    key = pairs[0][0].name.split("/")[0]
    one = resealed(pairs, key, lambda own, content: change(content) if own == name else content)
    refused(tmp_path, written([*one, *(pair for pair in pairs if not pair[0].name.startswith(key))]))


def test_a_run_under_another_runs_key_is_refused(archive, tmp_path):
    pairs = entries(archive)
    first = min(info.name.split("/")[0] for info, _ in pairs)
    swapped = [member(info.name.replace(first, KEY), content) for info, content in pairs if first in info.name]
    refused(tmp_path, written(swapped))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 1024,
        b"not a tar" * 300,
        pickle.dumps(Hostile()),
        b"PK\x03\x04" + b"\0" * 600,
        b"\x1f\x8b" + b"x" * 900,
    ],
)
def test_what_is_no_archive_is_refused(content, tmp_path):
    refused(tmp_path, content)


def test_compressed_archives_are_refused_unread(archive, tmp_path):
    import gzip

    refused(tmp_path, gzip.compress(archive.read_bytes()))


@pytest.mark.parametrize("path", ["nothing.tar", ".", "pipe"])
def test_a_path_that_is_no_file_is_one_line(path, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RecombineError, match="archive"):
        read_archive(tmp_path / path, Store(tmp_path / "store"))


def test_every_truncation_and_many_flips_are_refused(archive, tmp_path):
    """Padding between entries is nobody's: a flip there may pass, if what is imported is what was exported."""
    content, chance = archive.read_bytes(), random.Random(0)
    store = Store(tmp_path / "store")
    path = tmp_path / "hostile.tar"
    passed = 0
    for _ in range(50):
        broken = bytearray(content)
        if chance.random() < 0.3:
            broken = broken[: chance.randrange(len(broken) - 1024)]
        else:
            broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        with suppress(RecombineError):
            read_archive(path, store)
            passed += 1
            assert all(not problems for _, problems in store.verify())
        for stored in store:
            store.remove(stored.key)
    assert passed < 35


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=2000), st.integers(0, 3000))
def test_any_bytes_are_refused_or_whole(source, archive, tmp_path, noise, place):
    content = archive.read_bytes()
    path = tmp_path / "fuzzed.tar"
    path.write_bytes(content[:place] + noise + content[place + len(noise) :])
    store = Store(tmp_path / "store")
    try:
        keys = read_archive(path, store)
    except RecombineError:
        assert len(store) in (0, 3)
    else:
        assert set(keys) <= {run.key for run in source.runs()}


def test_the_archive_is_read_as_it_was_checked(archive, tmp_path, monkeypatch):
    """Bytes that change between the check and the copy are found."""
    path = tmp_path / "changing.tar"
    path.write_bytes(archive.read_bytes())
    store = Store(tmp_path / "store")
    adopt = store.adopt

    def changed(run):
        place = run.members["arrays.safetensors"].offset_data + 5
        with open(path, "r+b") as file:
            file.seek(place)
            file.write(b"\xee")
        adopt(run)

    monkeypatch.setattr(store, "adopt", changed)
    with pytest.raises(RecombineError, match="changed while it was read"):
        read_archive(path, store)
    assert len(store) == 0
