"""`--import MODULE`, which every command takes: a user's module that registers parts, before flags are parsed."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from recombine.errors import InvalidValue

FLAG = "--import"
EPILOGUE = f"Every command takes {FLAG} MODULE: a module of yours that registers parts (docs/extending.md)."


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

    The folder stays on the path: training processes of this command import the module as well.
    """
    file = Path(name)
    is_file = file.suffix == ".py"
    folder = str(file.parent.resolve()) if is_file else os.getcwd()
    sys.path.insert(0, folder)
    try:
        importlib.import_module(file.stem if is_file else name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a user's module does, SystemExit included
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InvalidValue(FLAG, name, f"a module that can be imported ({reason})") from None
    finally:
        sys.path.remove(folder)
        sys.path.append(folder)  # last, so that a file there never takes the place of another library's
