"""A process that has everything imported and forks a child for each list of steps that it is given.

Each line of input is a JSON list of steps `[NAME, argument, ...]`, done in turn by one child (`STEPS` has the names).
Output is a line `["child", PID]`, a line `["outcome", value]` per step, and `["ended", STATUS]`. The shim that makes
storage calls fail is preloaded; a child arms it by a step of its own, so that an import is paid for once.
"""

import ctypes
import gc
import hashlib
import json
import os
import shutil
import sys
import traceback
from contextlib import suppress
from functools import partial
from pathlib import Path
from unittest.mock import patch

SHIM = "RECOMBINE_TEST_SHIM"
"""Environment variable with the path of the compiled shim."""
WARM_FLAGS = ["--size", "4", "--decoder", "mlp", "--width", "2", "--depth", "1", "--steps", "1", "--device", "cpu"]


PARSED = {}
"""Commands by their words: to parse them takes longer than to run them, and is not what is tried here."""


def parse(*words):
    """Parse a command before there is a child, unless it is none."""
    import recombine.cli

    if words not in PARSED:
        with suppress(Exception):
            command, bound, _ = recombine.cli.app.parse_args(list(words), exit_on_error=False, print_error=False)
            PARSED[words] = partial(command, *bound.args, **bound.kwargs)


def main(*words):
    """Exit code, standard output and standard error of a command, as a shell would see them."""
    import recombine.cli

    app = recombine.cli.app
    with (
        Captured() as output,
        patch.object(recombine.cli, "app", lambda *_, **how: PARSED.get(words, partial(app, words, **how))()),
    ):
        try:
            recombine.cli.main(list(words))
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
            code = 1
    return {"code": code, "out": output.texts[0], "err": output.texts[1]}


class Captured:
    """What a block writes to the descriptors of standard output and error, from Python or C."""

    def __enter__(self):
        self.files = [os.memfd_create("out"), os.memfd_create("err")]
        self.before = [os.dup(1), os.dup(2)]
        for target, file in zip((1, 2), self.files, strict=True):
            os.dup2(file, target)
        return self

    def __exit__(self, *_):
        sys.stdout.flush()
        sys.stderr.flush()
        self.texts = []
        for target, file, before in zip((1, 2), self.files, self.before, strict=True):
            os.dup2(before, target)
            os.close(before)
            self.texts.append(os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace"))
            os.close(file)


def arm(folder, log, call=-1, mode=0, error=0, kinds=0, only=""):
    """Count the storage calls below a folder from now on, and make one go wrong, or some."""
    journal = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    what = (ctypes.c_long(call), mode, error, ctypes.c_uint(kinds), os.fsencode(only))
    arguments = (os.fsencode(folder), *what, journal)
    ctypes.CDLL(os.environ[SHIM]).campaign_arm(*arguments)


def disarm():
    """Let every call through again."""
    ctypes.CDLL(os.environ[SHIM]).campaign_disarm()


def fork_workers():
    """Let the processes of a sweep be forks of this one, which meet the same fault, and pay for no import."""
    import multiprocessing

    forking = multiprocessing.get_context("fork")
    multiprocessing.get_context = lambda method=None: forking


def restore(pristine, folder):
    """Make a folder what it was before it was harmed; or nothing, where there was none."""
    shutil.rmtree(folder, ignore_errors=True)
    if pristine is not None:
        shutil.copytree(pristine, folder, symlinks=True)


def harm(path, how, *arguments):
    """Harm one file."""
    from tests.campaigns.harm import HARMS

    HARMS[how](Path(path), *arguments)


def text(path):
    """The content of a text file, which is removed; None where there is none."""
    file = Path(path)
    content = file.read_text(errors="replace") if file.is_file() else None
    file.unlink(missing_ok=True)
    return content


def weights(store):
    """What must not depend on interruptions: key, weights and arrays of every run, as a digest."""
    from recombine.store import Store

    def read():
        runs = sorted(Store(store, create=False), key=lambda run: run.key)
        return [(run.key, run.weights(), run.arrays()) for run in runs]

    return _tried(read)


def datasets(folder):
    """Values and coordinates of all Datasets of a results folder, as a digest."""
    from recombine.reproduction.results import Results

    def read():
        results = Results.existing(folder)
        return [(name, results.dataset(name).to_dict()["data_vars"]) for name in results.studies]

    return _tried(read)


def provenance(folder):
    """What a results folder says of its origin, as a digest."""
    from recombine.reproduction.results import Results

    return _tried(lambda: Results.existing(folder).provenance)


def _tried(read):
    """The digest of what is read, in the form of a command's outcome."""
    from recombine.errors import RecombineError

    try:
        content = read()
    except RecombineError as error:
        return {"code": 2, "out": "", "err": f"recombine: {error}\n"}
    except BaseException:
        return {"code": 1, "out": "", "err": traceback.format_exc()}
    return {"code": 0, "out": hashlib.sha256(repr(_plain(content)).encode()).hexdigest(), "err": ""}


def _plain(value):
    """Arrays as bytes: what is printed of them is rounded."""
    if isinstance(value, dict):
        return [(name, _plain(part)) for name, part in sorted(value.items())]
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return (str(value.dtype), value.shape, value.tobytes()) if hasattr(value, "tobytes") else value


STEPS = {
    step.__name__: step
    for step in (main, arm, disarm, fork_workers, restore, harm, text, weights, datasets, provenance)
}


def _draw_empty_figures():
    """Let a page's figures be empty: to draw them takes most of its time, and is not what is tried here."""
    from matplotlib import pyplot

    from recombine.reproduction.paper import Findings

    Findings.draw = lambda findings, figure: pyplot.figure(figsize=(1, 1))


def warm(folder):
    """Import and compile now what children would otherwise import and compile each on its own."""
    import h5py  # noqa: F401
    import torch
    import xarray  # noqa: F401

    import recombine.reproduction.reproduce  # noqa: F401
    import tests.campaigns.harm  # noqa: F401
    from tests.campaigns.scenes import STUDY

    torch.set_num_threads(1)
    _draw_empty_figures()
    main("train", *WARM_FLAGS, "--store", f"{folder}/store")
    for command in ("list", f"export {folder}/table.csv"):
        main("runs", *command.split(), "--store", f"{folder}/store")
    main("verify", f"{folder}/store")
    main("reproduce", *STUDY, "--store", f"{folder}/store", "--out", f"{folder}/out")
    shutil.rmtree(folder)


def serve():
    """Fork a child per line of input."""
    replies = os.fdopen(os.dup(1), "w")

    def reply(*words):
        replies.write(json.dumps(words) + "\n")
        replies.flush()

    reply("ready")
    gc.collect()
    gc.freeze()  # else a collection would copy every page that children share
    for line in sys.stdin:
        steps = json.loads(line)
        for words in {tuple(arguments) for name, *arguments in steps if name == "main"}:
            parse(*words)
        child = os.fork()
        if child == 0:
            try:
                reply("child", os.getpid())
                for name, *arguments in steps:
                    reply("outcome", STEPS[name](*arguments))
            except BaseException:
                traceback.print_exc()
                os._exit(70)
            os._exit(0)
        reply("ended", os.waitpid(child, 0)[1])


if __name__ == "__main__":
    warm(sys.argv[1])
    serve()
