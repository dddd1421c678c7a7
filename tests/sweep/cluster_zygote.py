"""A process that has torch and Dask imported and forks the processes of a cluster.

Each line on its input is a JSON object: `kind` (scheduler, worker, driver, or `module:function`), `words` for Dask's
own command line, `log` for what the process writes, and what a driver needs. The child's process number is printed at
once. Every run that a child saves is a line of `audit`: `again` where it was in the store already.
"""

import importlib
import json
import os
import signal
import sys
import time
import traceback


def main() -> None:
    for name in ("distributed.cli.dask_scheduler", "distributed.cli.dask_worker", "recombine.sweep.cluster"):
        importlib.import_module(name)

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(begin(json.loads(line)))
        print(child, flush=True)


def begin(order: dict) -> int:
    """Be one of the processes of a cluster."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    try:
        keep_audit(order["audit"])
        make_poison(order["poison"])
        keep_steps(order.get("steps"))
        pretend(**order.get("pretend") or {})
        return _function(order["kind"])(order)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stderr.flush()


def keep_audit(path: str) -> None:
    from recombine.store import Store

    save = Store.save

    def audited(self, key, *rest):
        before = os.path.lexists(self.run(key).path)
        run = save(self, key, *rest)
        with open(path, "a") as file:
            file.write(f"{'again' if before else 'saved'} {key}\n")
        return run

    Store.save = audited


def keep_steps(path: str | None) -> None:
    """Write a line with steps and seconds of every span that is trained, so that repeated work can be counted."""
    if path is None:
        return
    from recombine.sweep.group import Group

    fit = Group.fit

    def counted(self):
        before, began = self.steps_done, time.monotonic()
        for _ in fit(self):
            with open(path, "a") as file:
                file.write(f"{self.steps_done - before} {time.monotonic() - began}\n")
            before = self.steps_done
            yield
            began = time.monotonic()

    Group.fit = counted


def pretend(version=None, gpu=False, store=None, mute=False, quiet=None) -> None:
    """Be a worker of another version, with a GPU that is this CPU, with another store, or that says nothing when a task
    is over; and a driver that searches the store after so many seconds."""
    import torch

    from recombine.sweep import cluster

    if version:
        cluster.__version__ = version
    if gpu:
        cluster.resolve_device = lambda name: torch.device("cpu")
    if store:
        opened = cluster.Store
        cluster.Store = lambda path, **how: opened(store, **how)
    if mute:
        from distributed.batched import BatchedSend

        send = BatchedSend.send
        BatchedSend.send = lambda self, *messages: send(
            self, *(message for message in messages if message.get("op") != "task-finished")
        )
    if quiet:
        cluster.QUIET_SECONDS = quiet


def make_poison(poison: dict) -> None:
    """Let some runs kill their worker, or raise, when they are trained."""
    from recombine.sweep.group import Group

    fit = Group.fit

    def poisoned(self):
        for key in self.keys:
            if poison.get(key) == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if poison.get(key) == "raise":
                raise RuntimeError("poisoned")
        yield from fit(self)

    Group.fit = poisoned


def be_dask(order: dict) -> int:
    module = importlib.import_module(f"distributed.cli.dask_{order['kind']}")
    module.main(order["words"], standalone_mode=False)
    return 0


def be_driver(order: dict) -> int:
    from recombine.errors import Interrupted, RecombineError, RunsFailed
    from recombine.specs import RunSpec
    from recombine.sweep import train

    specs = [RunSpec.from_json(json.dumps(spec)) for spec in order["specs"]]
    settings = {
        "device": order.get("device", "cpu"),
        "checkpoint_seconds": order["checkpoint"],
        "members": order.get("members"),
    }
    try:
        if order["scheduler"] is None:
            train(specs, order["store"], processes=1, **settings)
        else:
            say = lambda line: print(line, flush=True)  # noqa: E731
            train(specs, order["store"], scheduler=order["scheduler"], say=say, **settings)
    except (Interrupted, RunsFailed) as error:
        print(error, flush=True)
        return 130 if isinstance(error, Interrupted) else 3
    except RecombineError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        return 2
    print("finished", flush=True)
    return 0


KINDS = {"scheduler": be_dask, "worker": be_dask, "driver": be_driver}


def _function(kind: str):
    module, _, name = kind.partition(":")
    return getattr(importlib.import_module(module), name) if name else KINDS[kind]


if __name__ == "__main__":
    main()
