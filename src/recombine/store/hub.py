"""Push to the Hugging Face hub and pull from it, where its library is installed; whatever it refuses is one line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from recombine.errors import InvalidValue, RecombineError, reason_of
from recombine.files import fill_folder
from recombine.version import __version__

REPOSITORY = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", re.ASCII)
"""Names of repositories; nothing that is a path."""


def pushed(repo_id: str, contents: Mapping[str, bytes], *, private: bool | None, token: str | None,
           revision: str | None, commit_message: str) -> str:  # fmt: skip
    """Upload files as one commit, to a repository that is made where there is none; its address."""
    _require_name("repo_id", repo_id)
    hub = _library()
    api = hub.HfApi(token=token, library_name="recombine", library_version=__version__)
    with TemporaryDirectory() as folder, _one_line("repo_id", repo_id, "a repository that can be written to"):
        fill_folder(Path(folder), contents)
        address = api.create_repo(repo_id, private=private, exist_ok=True)
        api.upload_folder(repo_id=address.repo_id, folder_path=folder, revision=revision, commit_message=commit_message)
    return str(address)


def pulled(repo_id: str, names: list[str], *, revision: str | None, token: str | None) -> Path:
    """The folder with these files of a repository, downloaded unless they are at hand."""
    _require_name("source", repo_id)
    hub = _library()
    with _one_line("source", repo_id, "a folder that exists, or a repository of the hub that can be read"):
        return Path(
            hub.snapshot_download(
                repo_id, revision=revision, token=token, allow_patterns=names,
                library_name="recombine", library_version=__version__,
            )
        )  # fmt: skip


def _require_name(field: str, repo_id: Any) -> None:
    if not isinstance(repo_id, str) or not REPOSITORY.fullmatch(repo_id):
        what = "a repository of the hub, as 'name/model'"
        raise InvalidValue(field, repo_id, what if field == "repo_id" else f"a folder that exists, or {what}")


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise RecombineError("hub: huggingface_hub is not installed; pip install huggingface_hub") from None
    return huggingface_hub


@contextmanager
def _one_line(field: str, value: str, allowed: str) -> Iterator[None]:
    """Turn what the library, or the network below it, raises into one line."""
    try:
        yield
    except RecombineError:
        raise
    except Exception as error:
        raise InvalidValue(field, value, f"{allowed} ({reason_of(error)})") from error
