"""`--import MODULE`, which every command takes: a user's module that registers parts, before flags are parsed."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

from recombine.errors import InvalidValue, reason_of

FLAG = "--import"


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
