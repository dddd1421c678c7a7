"""The requirements that `make test-lowest` and others take from pyproject.toml."""

import pytest
from tools import requirements as tool

PROJECT = {
    "name": "ours",
    "dependencies": ["numpy>=1.26", "pydantic>=2.8,<3"],
    "optional-dependencies": {"gpu": ["triton>=3.2; sys_platform == 'linux'"], "all": ["ours[gpu]", "dask>=1"]},
}


def test_extras_of_the_project_itself_are_followed():
    assert tool.requirements(PROJECT, "project") == PROJECT["dependencies"]
    assert tool.requirements(PROJECT, "all") == ["triton>=3.2; sys_platform == 'linux'", "dask>=1"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("numpy>=1.26", "numpy==1.26"),
        ("pydantic>=2.8,<3", "pydantic==2.8"),
        ("pydantic<3, >=2.8", "pydantic==2.8"),
        ("triton>=3.2; sys_platform == 'linux'", "triton==3.2; sys_platform == 'linux'"),
        ("dask[complete]>=2024.1", "dask[complete]==2024.1"),
    ],
)
def test_the_lowest_version_is_the_bound(line, expected):
    assert tool.lowest(line) == expected


def test_every_requirement_of_the_package_has_a_lowest_version(capsys):
    tool.main(["--lowest", "project", "dask", "widget", "parquet", "umap", "test=ranges"])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("torch==") for line in lines)
    assert any(line.startswith("distributed==") for line in lines)
    assert any(line.startswith("pytest>=") for line in lines)
