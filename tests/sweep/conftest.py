"""One cluster for all tests that need one."""

import pytest

from tests.sweep.cluster import KILLER, RAISER, Cluster, is_alive


@pytest.fixture(scope="package")
def cluster(tmp_path_factory):
    """A scheduler and three workers, which two runs poison."""
    poison = {KILLER.digest: "kill", RAISER.digest: "raise"}
    folder = tmp_path_factory.mktemp("cluster")
    started = Cluster(folder, workers=3, poison=poison, steps=folder / "steps")
    yield started
    started.close()


@pytest.fixture
def running(cluster):
    """The cluster with its scheduler and workers alive, and an empty audit."""
    if not is_alive(cluster.scheduler):
        cluster.start_scheduler()
    cluster.keep()
    cluster.audit.write_text("")
    return cluster


@pytest.fixture
def unlike(running):
    """The same, for tests that start workers of another kind; ordinary ones take their place afterwards."""
    yield running
    running.extra, running.settings = {}, {}
    running.replace_workers()
