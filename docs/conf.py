"""How Sphinx makes the site of these pages: `make docs`."""

from __future__ import annotations

import os
import re
import sys
import tomllib
import zipfile
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(Path(__file__).parent))

project = "toolspeak"
author = "The toolspeak authors"
release = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
project_copyright = author

extensions = ["myst_parser", "public_names"]

# Signatures name types by their last word, one parameter a line where they are long.
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
add_module_names = False

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

# What `examples.zip` has of `examples/`.
EXAMPLE_FILES = {".py", ".json", ".html", ".ipynb", ".md"}

# Files of the project that are pages here too.
PAGE_OF_FILE = {"CHANGELOG.md": "reference/changelog.md", "examples/README.md": "guides/examples.md"}


def mend_links(_app: Sphinx, path: Path, _page: str, content: list[str]) -> None:
    """Leads the relative links of an included file to the same places from its page."""
    file = (ROOT / "docs" / path).resolve()
    page = ROOT / "docs" / PAGE_OF_FILE[str(file.relative_to(ROOT))]

    def link(match: re.Match[str]) -> str:
        target = os.path.relpath(file.parent / match[1], ROOT)
        target = f"docs/{PAGE_OF_FILE[target]}" if target in PAGE_OF_FILE else target
        return f"]({os.path.relpath(ROOT / target, page.parent)}{match[2] or ''})"

    content[0] = re.sub(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)", link, content[0])


def pack_examples(app: Sphinx, error: Exception | None) -> None:
    """Puts the examples on the site as one file, with what they read. The same examples make the same bytes."""
    if error is not None:
        return
    with zipfile.ZipFile(app.outdir / "examples.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((ROOT / "examples").rglob("*")):
            if path.suffix in EXAMPLE_FILES:
                archive.writestr(
                    zipfile.ZipInfo(path.relative_to(ROOT).as_posix()), path.read_bytes(), zipfile.ZIP_DEFLATED
                )


def setup(app: Sphinx) -> None:
    app.connect("include-read", mend_links)
    app.connect("build-finished", pack_examples)
