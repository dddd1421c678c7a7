"""Whether several hosts can train into one store.

Runs, checkpoints and locks need renames and file locks, which network file systems have. But on some of them, or with
some mount options, a lock is seen only by its own host: one host can work there as on a disk, several would train the
same run, so sweeps over hosts refuse them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from recombine.errors import StoreError

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
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        is_below = resolved == point or resolved.startswith(point.rstrip("/") + "/")
        if is_below and len(point) >= longest:  # of two at one place the later one is seen
            longest = len(point)
            found = FileSystem(described[0], frozenset(f"{fields[5]},{described[2]}".split(",")))
    return found


def require_shared_locks(path: Path) -> None:
    """Refuse a store for a sweep over several hosts where they would not see each other's locks."""
    system = file_system(path)
    if system.is_network and not system.shares_locks:
        raise StoreError(
            f"store must be a directory on a file system whose locks all hosts see ({system} is not one) "
            f"unless the sweep is on this host alone, got {str(path)!r}"
        )
