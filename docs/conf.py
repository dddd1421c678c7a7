"""How the site is built: `make docs`, or `python -m sphinx -W docs build/docs`. Nothing is taken from a network."""

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
    "mathml",
    "notebooks",
    "records",
]
exclude_patterns = ["**.ipynb_checkpoints"]
templates_path: list[str] = []
default_role = "literal"  # a name in single backquotes, in docstrings
highlight_language = "text"

html_theme = "furo"
html_title = f"recombine {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"

autodoc_typehints = "none"  # said in Parameters
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Conventions"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
myst_update_mathjax = False  # formulas need no script
nb_execution_mode = "cache"  # notebooks are stored without outputs; one that did not change is not run again
nb_execution_cache_path = str(HERE.parent / "build" / "notebooks")
nb_execution_in_temp = True  # they write runs and reports where they are
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # which would come from a network

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
