"""File systems: which are recognised, and which a sweep over hosts refuses."""

import pytest

from recombine.errors import StoreError
from recombine.store import filesystems
from recombine.store.filesystems import FileSystem, file_system, require_shared_locks

LINE = "{number} 1 0:{number} / {point} rw,relatime shared:1 - {kind} server:/export rw,{options}\n"
ROOT = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"


@pytest.fixture
def mounted(tmp_path, monkeypatch):
    """Declares what is mounted where, as the system would."""

    def declare(*mounts):
        lines = [ROOT]
        for number, (point, kind, options) in enumerate(mounts, 2):
            lines.append(LINE.format(number=number, point=str(point).replace(" ", r"\040"), kind=kind, options=options))
        (tmp_path / "mountinfo").write_text("".join(lines))
        monkeypatch.setattr(filesystems, "MOUNTS", tmp_path / "mountinfo")

    return declare


def test_the_deepest_and_latest_mount_counts(tmp_path, mounted):
    mounted((tmp_path, "nfs4", "vers=4.2"), (tmp_path / "a b", "lustre", "flock"), (tmp_path / "a b", "beegfs", ""))
    (tmp_path / "a b" / "c").mkdir(parents=True)
    assert file_system(tmp_path / "else").kind == "nfs4"
    assert file_system(tmp_path / "a b" / "c").kind == "beegfs"
    assert file_system(tmp_path / "a bc").kind == "nfs4"
    assert file_system(tmp_path.parent).kind == "ext4"


def test_links_are_seen_through(tmp_path, mounted):
    (tmp_path / "net").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "net")
    mounted((tmp_path / "net", "nfs", ""))
    assert file_system(tmp_path / "link").is_network


@pytest.mark.parametrize("text", ["", "nonsense\n", "1 2 3 - x\n", None])
def test_where_the_system_does_not_say_it_is_taken_for_a_disk(text, tmp_path, monkeypatch):
    path = tmp_path / "mountinfo"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(filesystems, "MOUNTS", path)
    assert file_system(tmp_path) == FileSystem("unknown")


@pytest.mark.parametrize(
    ("kind", "options", "network", "shared"),
    [("ext4", "", False, False), ("xfs", "", False, False), ("tmpfs", "", False, False), ("overlay", "", False, False),
     ("nfs", "vers=3", True, True), ("nfs", "nolock", True, False), ("nfs4", "local_lock=flock", True, False),
     ("nfs4", "local_lock=none", True, True), ("lustre", "flock", True, True), ("lustre", "localflock", True, False),
     ("gpfs", "", True, True), ("ceph", "", True, True), ("fuse.sshfs", "", True, False), ("9p", "", True, False),
     ("cifs", "", True, False), ("fuse.s3fs", "", True, False)],
)  # fmt: skip
def test_kinds(kind, options, network, shared, tmp_path, mounted):
    mounted((tmp_path, kind, options))
    assert file_system(tmp_path).is_network is network
    assert file_system(tmp_path).shares_locks is shared
    if network and not shared:
        with pytest.raises(StoreError, match=f"{kind}.* is not one") as caught:
            require_shared_locks(tmp_path)
        assert len(str(caught.value).splitlines()) == 1
    else:
        require_shared_locks(tmp_path)
