"""Import user code, given by `--import MODULE` (an option of every command) or as `package.module:name`.

`--remedy MODULE:CLASS` imports a remedy; only a command does so, never a sweep file.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from recombine.errors import InvalidValue, RecombineError, reason_of

if TYPE_CHECKING:
    from torch import nn

FLAG, REMEDY = "--import", "--remedy"
FACTORY = "a torch module, or a callable without arguments that returns one, as package.module:name or file.py:name"


def without_imports(words: list[str]) -> list[str]:
    """Import what `--import` and `--remedy MODULE:CLASS` name; return the other arguments, remedies by their kind."""
    rest, remaining = list[str](), iter(words)
    for word in remaining:
        flag, equals, name = word.partition("=")
        if flag == REMEDY or rest[-1:] == [REMEDY]:
            value = name if flag == REMEDY and equals else word
            rest.append(word.removesuffix(value) + "+".join(map(_known_remedy, value.split("+"))))
            continue
        if flag != FLAG:
            rest.append(word)
            continue
        name = name if equals else next(remaining, "")
        if not name or name.startswith("-"):
            raise InvalidValue(FLAG, name, "the name of a module")
        import_parts(name)
    return rest


def import_parts(name: str, flag: str = FLAG) -> ModuleType:
    """Import and return a module given to a flag by its name or file; it may be in the current folder."""
    file = Path(name if name.endswith(".py") else f"{name}.py").absolute()
    is_file = name.endswith(".py") or file.is_file()
    # appended, so that no file there shadows a library; not removed, since worker processes import the module by name
    sys.path.append(str(file.parent))
    try:
        module = importlib.import_module(file.stem if is_file else name)
        if is_file and not (module.__file__ and file.samefile(module.__file__)):
            raise ImportError(f"another module is called {file.stem}; rename the file")
    except (Exception, SystemExit) as error:
        raise RecombineError(f"{flag} {name} failed: {reason_of(error)}") from error
    return module


def _known_remedy(text: str) -> str:
    """Import and register a remedy given as `module:Class`, and return it by its kind; leave others as they are."""
    from recombine.remedies import REMEDIES

    source, _, rest = text.partition(":")
    name, *settings = rest.split(":")
    if source in REMEDIES or source.startswith("-") or not name or "=" in name:
        return text
    import_parts(source)
    cls = getattr(sys.modules[Path(source).stem if source.endswith(".py") else source], name, None)
    if cls is None:
        raise InvalidValue("remedy", text, f"the name of a class in {source}")
    return ":".join([REMEDIES.register(cls).kind_name(), *settings])


def module_from(factory: str) -> nn.Module:
    """Return the torch module that a name refers to, calling it if it is a function or class."""
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
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # pickle and dataclasses look it up there
    spec.loader.exec_module(module)
    return module


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let user code in this context import from its own folder and the current folder."""
    before, sys.path[:0] = list(sys.path), [str(folder), os.getcwd()]
    try:
        yield
    finally:
        sys.path[:] = before


@contextmanager
def users_code(field: str, factory: str, allowed: str) -> Iterator[None]:
    """Turn any error raised by user code in this context into a one-line message."""
    try:
        yield
    except (RecombineError, MemoryError):
        raise
    except (Exception, SystemExit) as error:  # a script may call `sys.exit()`
        raise InvalidValue(field, factory, f"{allowed} ({reason_of(error)})") from error
