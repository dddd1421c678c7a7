"""A process that has torch imported and forks a training child for each line it is given.

Each line is a JSON object: `store`, `specs`, `checkpoint`, `members`. The child's process number is printed at once,
its exit code when it ends. Used to kill training at random moments without paying for an import each time.
"""

import json
import os
import sys
import traceback


def work(order: dict) -> None:
    import torch

    from recombine.specs import RunSpec
    from recombine.store import Store
    from recombine.sweep import train

    torch.set_num_threads(1)
    if log := os.environ.get("RECOMBINE_TEST_LOG"):
        save = Store.save

        def logged(self, key, *rest):
            with open(log, "a") as file:
                file.write(f"{os.getpid()} {key} {self.path}\n")
            return save(self, key, *rest)

        Store.save = logged
    specs = [RunSpec.from_json(json.dumps(spec)) for spec in order["specs"]]
    train(specs, order["store"], checkpoint_seconds=order["checkpoint"], members=order.get("members"))


def main() -> None:
    import recombine.sweep  # noqa: F401
    from recombine.errors import Interrupted

    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                work(json.loads(line))
            except (Interrupted, KeyboardInterrupt):
                os._exit(130)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        print(child, flush=True)
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    main()
