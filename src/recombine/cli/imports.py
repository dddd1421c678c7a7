"""Import user code, given by `--import MODULE` (an option of every command) or as `package.module:name`.

`--remedy MODULE:NAME` imports a remedy, and likewise the other flags of parts; only a command does so, never a file.
`--import MODULE:NAME` registers the part as these flags do, so that a stored run of it can be opened.
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

from recombine.errors import InvalidValue, RecombineError, listed, reason_of

if TYPE_CHECKING:
    from torch import nn

    from recombine.records import Registry

FLAG, REMEDY, DECODER = "--import", "--remedy", "--decoder"
PARTS = (REMEDY, DECODER, "--task", "--encoding", "--holdout", "--training")
"""Flags whose values may be `MODULE:NAME`."""
FACTORY = "a torch module, or a callable without arguments that returns one, as package.module:name or file.py:name"


def without_imports(words: list[str]) -> list[str]:
    """Import what `--import` and flags such as `--remedy MODULE:NAME` name; return other arguments, parts by kind."""
    rest, remaining = list[str](), iter(words)
    for word in remaining:
        flag, equals, name = word.partition("=")
        if flag == FLAG:
            name = name if equals else next(remaining, "")
            if not name or name.startswith("-"):
                raise InvalidValue(FLAG, name, "the name of a module")
            source, _, part = name.partition(":")
            module = import_parts(source)
            if part:
                _registered(FLAG, name, module, part)
        elif flag in PARTS and equals:
            rest.append(f"{flag}={known_part(flag, name)}")
        else:
            rest.append(known_part(rest[-1], word) if rest and rest[-1] in PARTS else word)
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


def known_part(flag: str, text: str) -> str:
    """Register parts given as `module:name`, and return them by their kind; leave others as they are."""
    if flag == REMEDY and "+" in text:
        return "+".join(known_part(flag, own) for own in text.split("+"))
    source, _, rest = text.partition(":")
    name, *settings = rest.split(":")
    if source.startswith("-") or not name.isidentifier() or source in _registries()[flag]:
        return text
    return ":".join([_registered(flag, text, import_parts(source, flag), name), *settings])


def _registries() -> dict[str, Registry[Any]]:
    """Return the registry of each flag."""
    from recombine.decoders import DECODERS
    from recombine.encodings import ENCODINGS
    from recombine.holdouts import HOLDOUTS
    from recombine.remedies import REMEDIES
    from recombine.tasks import TASKS, TRAINING_RULES

    return dict(zip(PARTS, (REMEDIES, DECODERS, TASKS, ENCODINGS, HOLDOUTS, TRAINING_RULES), strict=True))


def _registered(flag: str, text: str, module: ModuleType, name: str) -> str:
    """Register a class, or a function that returns a module as a decoder, and return its kind."""
    from recombine.decoders import module_decoder

    part: Any = getattr(module, name, None)
    registries = _registries()
    own = registries.values() if flag == FLAG else (registries[flag],)
    registry = next((one for one in own if isinstance(part, type) and issubclass(part, one.base)), None)
    if registry is not None:
        return str(registry.register(part).kind_name())
    if flag not in (FLAG, DECODER) or not (callable(part) and hasattr(part, "__name__")):  # a module has no name
        kinds = listed(dict.fromkeys(one.base.__name__ for one in own))
        function = ", or a function that returns a module" if flag in (FLAG, DECODER) else ""
        allowed = f"the name of a class in {module.__name__}: a {kinds}{function}"
        raise InvalidValue(flag.removeprefix("--"), text, allowed)
    return module_decoder(name)(part).kind_name()


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
