"""Configuration of the site: `make docs`, or `python -m sphinx -W docs build/docs`. No network is needed."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "extensions"), str(HERE.parent / "src")]

from recombine.version import __version__  # noqa: E402

project = "recombine"
author = "The recombine developers"
copyright = f"{author}; MIT licence"
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "myst_nb",
    "commands",  # these are in docs/extensions
    "examples",
    "live_page",
    "mathml",
    "names",
    "notebooks",
    "records",
]
exclude_patterns = ["**.ipynb_checkpoints"]
templates_path: list[str] = []
default_role = "literal"  # single backquotes in docstrings
highlight_language = "text"

html_theme = "furo"
html_title = f"recombine {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"

autodoc_typehints = "none"  # they are in the Parameters
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Conventions"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
myst_update_mathjax = False  # formulas are MathML and need no script
nb_execution_mode = "cache"  # notebooks have no stored outputs; only changed ones are run again
nb_execution_cache_path = str(HERE.parent / "build" / "notebooks")
nb_execution_in_temp = True  # they write runs and reports to the current folder
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # these would be loaded from a network
nb_mime_priority_overrides = [("html", "text/html", 1)]  # before widgets

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
