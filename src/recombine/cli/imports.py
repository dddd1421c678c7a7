"""A user's own code: `--import MODULE`, which every command takes, and modules by `package.module:name`.

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

FLAG = "--import"
FACTORY = "package.module:name or file.py:name of a function or class without arguments that returns a torch module"


def without_imports(words: list[str]) -> list[str]:
    """The words of a command without the modules to import, which are imported."""
    rest, names, position = [], [], 0
    while position < len(words):
        word = words[position]
        position += 1
        if word == FLAG:
            if position == len(words) or words[position].startswith("-"):
                raise InvalidValue(FLAG, "", "the name of a module")
            names.append(words[position])
            position += 1
        elif word.startswith(f"{FLAG}="):
            names.append(word.partition("=")[2])
        else:
            rest.append(word)
    for name in names:
        import_parts(name)
    return rest


def import_parts(name: str) -> None:
    """Import a module by its name or its file's, from the current folder too; a failure is one line.

    Its folder is the last of the path, so that no file there takes the place of another library's, and stays there:
    training processes of this command import the module as well, by its name.
    """
    file = Path(name if name.endswith(".py") else f"{name}.py").absolute()
    try:
        if name.endswith(".py") and not file.is_file():
            raise FileNotFoundError("there is no such file")
        sys.path.append(str(file.parent))
        if file.is_file():
            _require_own_name(file)
        importlib.import_module(file.stem if file.is_file() else name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a user's module does, SystemExit included
        raise InvalidValue(FLAG, name, f"a module that can be imported ({reason_of(error)})") from None


def _require_own_name(file: Path) -> None:
    """Refuse a file that has the name of another module: whoever imports that name gets one of the two."""
    name, origin = file.stem, None
    if (loaded := sys.modules.get(name)) is not None:
        origin = getattr(loaded, "__file__", None) or "built in"
    elif (spec := importlib.util.find_spec(name)) is not None:
        origin = spec.origin
    is_other = origin is not None and not (os.path.exists(origin) and os.path.samefile(origin, file))
    if name in sys.stdlib_module_names or is_other:
        raise ImportError(f"another module is called {name}; rename the file")


def module_from(factory: str) -> nn.Module:
    """The module that a factory returns, or that it is."""
    from torch import nn

    source, _, name = factory.rpartition(":")
    if not (source and name):
        raise InvalidValue("factory", factory, FACTORY)
    folder = Path(source).parent if source.endswith(".py") else Path()
    with users_code("factory", factory, FACTORY), _importable(folder.absolute()):
        part: Any = attrgetter(name)(_imported(source))
        module = part if isinstance(part, nn.Module) else part()
    if not isinstance(module, nn.Module):
        raise InvalidValue("factory", factory, f"{FACTORY}, not {type(module).__name__}")
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
    spec.loader.exec_module(module)
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
def users_code(field: str, factory: str, allowed: str) -> Iterator[None]:
    """A context in which code of the user's runs: whatever it raises is one line that says where."""
    try:
        yield
    except (RecombineError, MemoryError):
        raise
    except (Exception, SystemExit) as error:  # a script's `sys.exit()` is a mistake here, too
        raise InvalidValue(field, factory, f"{allowed} ({reason_of(error)}{_where(error)})") from error


def _where(error: BaseException) -> str:
    """The last line of the user's own code that ran."""
    ours = Path(__file__).parents[1]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_file() and ours not in path.parents and "importlib" not in path.parts:
            return f", {path.name} line {frame.lineno}"
    return ""
