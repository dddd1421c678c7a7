"""What kind of file system a store is on, and what that means for it.

Runs, checkpoints and locks need renames and file locks alone, which network file systems have. The index does not work
there: SQLite's write-ahead log is memory that processes of one host share. As the index is only a cache, each host
keeps one of its own, in the user's cache folder, for a store on a network file system.

Locks are another matter. On some network file systems, or with some options of others, a lock is seen by its own host
alone. One host can work there as on a disk; several would train the same run, so sweeps over hosts refuse them.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from recombine.errors import StoreError
from recombine.files import cache_folder
from recombine.keys import DIGEST_LENGTH

MOUNTS = Path("/proc/self/mountinfo")
SHARED_LOCKS = frozenset({
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "fuse.ceph", "fuse.ceph-fuse", "ocfs2", "gfs2", "panfs",
    "wekafs", "orangefs", "pvfs2", "fuse.glusterfs", "glusterfs", "fuse.juicefs", "vastfs",
})  # fmt: skip
"""Network file systems whose file locks all hosts see, unless an option says otherwise."""
OWN_LOCKS = frozenset({
    "cifs", "smb3", "smbfs", "9p", "afs", "ncpfs", "fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse",
    "fuse.goofys", "fuse.mountpoint-s3", "fuse.geesefs", "fuse.blobfuse", "fuse.blobfuse2", "fuse.grpcfuse",
    "fuse.osxfs", "virtiofs", "prl_fs", "vboxsf", "fuse.vmhgfs-fuse",
})  # fmt: skip
"""Network file systems, and folders of another system, whose locks may be seen by one host alone."""
LOCAL_OPTIONS = frozenset({"nolock", "local_lock=all", "local_lock=flock", "localflock", "noflock"})
"""Options with which locks are one host's alone, or none."""


@dataclass(frozen=True)
class FileSystem:
    """The file system that a path is on."""

    kind: str
    options: frozenset[str] = frozenset()

    @property
    def is_network(self) -> bool:
        """Whether other hosts may see it."""
        return self.kind in SHARED_LOCKS | OWN_LOCKS

    @property
    def shares_locks(self) -> bool:
        """Whether all hosts that see it see each other's locks."""
        return self.kind in SHARED_LOCKS and not self.options & LOCAL_OPTIONS

    def __str__(self) -> str:
        local = sorted(self.options & LOCAL_OPTIONS)
        return f"{self.kind}, {local[0]}" if local and self.is_network else self.kind


def file_system(path: Path) -> FileSystem:
    """The file system of a path; unknown where the system does not say."""
    try:
        text = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        resolved = os.path.realpath(path)
    except OSError:
        return FileSystem("unknown")
    found, longest = FileSystem("unknown"), -1
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        fields, described = before.split(" "), after.split(" ")
        if not dash or len(fields) < 6 or len(described) < 3:
            continue
        point = _plain(fields[4])
        if _is_below(resolved, point) and len(point) >= longest:  # of two at one place the later one is seen
            longest = len(point)
            found = FileSystem(described[0], frozenset(f"{fields[5]},{described[2]}".split(",")))
    return found


def _plain(text: str) -> str:
    """A mount point without its escapes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def index_folder(store: Path) -> Path | None:
    """Where this host keeps the index of a store: in the store, unless that is on a network file system.

    Then it is in the user's cache folder or, where that is on one too, in a folder of the user's own among temporary
    files; none where there is no such folder.
    """
    if not file_system(store).is_network:
        return store
    name = hashlib.sha256(os.fsencode(os.path.realpath(store))).hexdigest()[:DIGEST_LENGTH]
    for folder in (cache_folder(), Path(tempfile.gettempdir()) / f"recombine-{os.getuid()}"):
        if not file_system(folder).is_network and _is_ours(own := folder / "indices" / name):
            return own
    return None


def _is_ours(folder: Path) -> bool:
    """Whether there is such a folder, or can be, that belongs to this user."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return all(os.lstat(place).st_uid == os.getuid() for place in (folder, folder.parent, folder.parent.parent))
    except OSError:
        return False


def require_shared_locks(path: Path) -> None:
    """Refuse a store for a sweep over several hosts where they would not see each other's locks."""
    system = file_system(path)
    if system.is_network and not system.shares_locks:
        raise StoreError(
            f"store must be a directory on a file system whose locks all hosts see ({system} is not one) "
            f"unless the sweep is on this host alone, got {str(path)!r}"
        )
