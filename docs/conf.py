"""How Sphinx makes the site of these pages: `make docs`."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]

project = "toolspeak"
author = "The toolspeak authors"
release = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
project_copyright = author

extensions = ["myst_parser"]
nitpicky = True

# The levels of headings that links may name, as GitHub names them too.
myst_heading_anchors = 4

html_theme = "pydata_sphinx_theme"
html_title = "toolspeak"
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "show_toc_level": 2,
    "navigation_with_keys": False,
}
