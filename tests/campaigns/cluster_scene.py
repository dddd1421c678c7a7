"""A sweep on a real Dask cluster whose worker, or driver, meets a fault at one of its storage calls."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from recombine.store import Store
from tests.campaigns.faults import NONE, Call, Fault, calls, compiled_shim
from tests.campaigns.scenes import leftovers
from tests.campaigns.zygote import SHIM, weights
from tests.small import small_spec
from tests.sweep.cluster import Cluster, is_alive, kill, wait_for

ROLES = ("worker", "driver")
SPECS = [small_spec("mlp", seed=seed, steps=3) for seed in range(2)]
ENDS = re.compile(r"finished|(StoreError|StoreFull|InvalidValue|RecombineError): \w+: [^\n]+")
"""Last lines of a driver: a success, or one line about a mistake."""
PATIENCE = 60.0


@dataclass
class ClusterScene:
    """Two runs with checkpoints, one worker, one driver."""

    folder: Path
    cluster: Cluster = field(init=False)

    def __post_init__(self) -> None:
        shim = str(compiled_shim(self.folder))
        self.store = self.folder / "store"
        self.cluster = Cluster(self.folder / "cluster", workers=1, environment={"LD_PRELOAD": shim, SHIM: shim})
        self.cluster.start_scheduler()

    def log(self, role: str) -> Path:
        """Where the storage calls of a role are noted."""
        return self.folder / f"{role}.log"

    @cached_property
    def whole(self) -> tuple[object, dict[str, list[Call]]]:
        """What comes without a fault: the contents, and the calls of each role."""
        assert self.met("driver", 0, NONE) == "finished"
        recorded = {"driver": calls(self.log("driver"), self.store)}
        contents = weights(self.store)
        assert contents["code"] == 0
        assert self.met("worker", 0, NONE) == "finished"
        return contents, recorded | {"worker": calls(self.log("worker"), self.store)}

    def met(self, role: str, call: int, fault: Fault) -> str:
        """The last line of a driver in a sweep in which a call of a role meets a fault; none where it was killed."""
        cluster, log = self.cluster, self.log(role)
        log.unlink(missing_ok=True)
        shutil.rmtree(self.store, ignore_errors=True)
        arm = [str(self.store), str(log), *fault.at(call)]
        if role == "worker":
            kill(cluster.workers[0])
            wait_for(lambda: not is_alive(cluster.workers[0]))
            cluster.keep(arm=arm)
        driver = cluster.drive(self.store, SPECS, checkpoint=0, **({"arm": arm} if role == "driver" else {}))
        struck = cluster.workers[0]

        def ended() -> bool:
            """A worker whose disk stays full is waited for: then it is replaced by one without the fault."""
            if role == "worker" and any("waiting" in line for line in cluster.said()):
                kill(struck)
            return not is_alive(driver)

        cluster.until(ended, PATIENCE)
        if role == "worker":
            kill(struck)
        return (cluster.said() or [""])[-1]

    def struck(self, role: str) -> list[Call]:
        """Calls that met the fault."""
        return [call for call in calls(self.log(role), self.store) if call.fault != "-"]

    def finished(self) -> list[str]:
        """What is wrong after the same sweep is started again, without a fault."""
        cluster = self.cluster
        cluster.finish(cluster.drive(self.store, SPECS, checkpoint=0), patience=PATIENCE)
        problems = [] if cluster.said()[-1:] == ["finished"] else [f"the next start: {cluster.said()[-1:]}"]
        if not problems and weights(self.store) != self.whole[0]:
            problems.append("other contents after the next start")
        for name, wrong in Store(self.store).verify():
            problems += [f"{name}: {text}" for text in wrong]
        return [*problems, *(f"left behind: {path}" for path in leftovers(self.store))]

    def close(self) -> None:
        """End the cluster."""
        self.cluster.close()
