"""Modules from a user's own code: `package.module:name`, or a file, `folder/file.py:name`.

That code may do anything: need arguments, raise, not even parse. Whatever goes wrong is one line that says where in the
user's code it did.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from recombine.errors import InvalidValue, RecombineError, reason_of

if TYPE_CHECKING:
    from torch import nn

ALLOWED = "package.module:name or file.py:name of a function or class without arguments that returns a torch module"


def module_from(factory: str) -> nn.Module:
    """The module that a factory returns, or that it is."""
    from torch import nn

    source, _, name = factory.rpartition(":")
    if not (source and name):
        raise InvalidValue("factory", factory, ALLOWED)
    folder = Path(source).parent if source.endswith(".py") else Path()
    with _explained(factory), _importable(folder.absolute()):
        part: Any = attrgetter(name)(_imported(source))
        module = part if isinstance(part, nn.Module) else part()
    if not isinstance(module, nn.Module):
        raise InvalidValue("factory", factory, f"{ALLOWED}, not {type(module).__name__}")
    return module


def _imported(source: str) -> ModuleType:
    if not source.endswith(".py"):
        return importlib.import_module(source)
    path = Path(source).absolute()
    if not path.is_file():
        raise FileNotFoundError(f"no file {source}")
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_of_{abs(hash(path)):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # where pickles and dataclasses look for it
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let the user's code import what lies beside it and in the current folder."""
    before, sys.path[:0] = list(sys.path), [str(folder), os.getcwd()]
    try:
        yield
    finally:
        sys.path[:] = before


@contextmanager
def _explained(factory: str) -> Iterator[None]:
    try:
        yield
    except RecombineError:
        raise
    except (Exception, SystemExit) as error:  # a script's `sys.exit()` is a mistake here, too
        raise InvalidValue("factory", factory, f"{ALLOWED} ({reason_of(error)}{_where(error)})") from error


def _where(error: BaseException) -> str:
    """The last line of the user's own code that ran."""
    ours = Path(__file__).parents[1]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_file() and ours not in path.parents and "importlib" not in path.parts:
            return f", {path.name} line {frame.lineno}"
    return ""
