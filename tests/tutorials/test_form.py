"""Tutorials as they are committed: clean, of one form, and with links that lead somewhere."""

import re

import pytest

from tests.docs.test_pages import anchors
from tests.tutorials.notebooks import INSTALL, NAMES, PARAMETERS, TUTORIALS, code_cells, read


def text_of(name):
    return "\n".join("".join(cell["source"]) for cell in read(name)["cells"] if cell["cell_type"] == "markdown")


def test_all_tutorials_are_listed():
    assert sorted(path.stem for path in TUTORIALS.glob("*.ipynb")) == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_a_run_is_stored(name):
    notebook = read(name)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook["cells"]:
        assert set(cell["metadata"]) <= {"tags"}, cell["id"]
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], cell["id"]
            assert cell["execution_count"] is None, cell["id"]
            assert set(cell["metadata"].get("tags", [])) <= {PARAMETERS, INSTALL}, cell["id"]


@pytest.mark.parametrize("name", NAMES)
def test_the_first_code_installs_and_the_second_has_the_sizes(name):
    first, second, *others = code_cells(name)
    assert first == next(code_cells(NAMES[0]))
    assert first[1] == [INSTALL]
    assert len(first[2].splitlines()) == 1
    assert second[:2] == ("parameters", [PARAMETERS])
    assert all(re.fullmatch(r"[A-Z_]+ = \d+  # .+|SEEDS = \d+", line) for line in second[2].splitlines())
    assert [cell for cell in others if cell[1]] == []


@pytest.mark.parametrize("name", NAMES)
def test_what_is_found_is_checked_by_tests_not_by_readers(name):
    assert [cell for cell in code_cells(name) if re.search(r"^\s*assert\b", cell[2], flags=re.MULTILINE)] == []


@pytest.mark.parametrize(("name", "cell"), [("encoder_or_decoder", "train"), ("modules_of_other_libraries", "unet")])
def test_from_data_to_an_answer_in_fifteen_lines(name, cell):
    source = next(source for identity, _, source in code_cells(name) if identity == cell)
    assert "rc.diagnose(" in source
    assert sum(bool(line.strip()) for line in source.splitlines()) <= 15


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name):
    text = text_of(name)
    assert "colab.research.google.com" in text
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("https://")]
    assert links
    for link in links:
        target, _, heading = link.partition("#")
        path = (TUTORIALS / target).resolve()
        assert path.is_file(), link
        assert not heading or heading in anchors(path), link
