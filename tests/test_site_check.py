"""docs/check_site.py sees a broken link, a missing anchor and what a page loads from elsewhere."""

import subprocess
import sys
from pathlib import Path

CHECK = Path(__file__).parents[1] / "docs" / "check_site.py"


def check(site: Path) -> tuple[int, list[str]]:
    process = subprocess.run([sys.executable, CHECK, site], capture_output=True, text=True, timeout=60, check=False)
    return process.returncode, process.stdout.splitlines()


def test_a_site_that_is_whole(tmp_path):
    (tmp_path / "b.html").write_text('<h1 id="top">B</h1>')
    (tmp_path / "a.html").write_text(
        '<a href="b.html#top">b</a> <a href="https://example.org/">elsewhere</a> <img src="data:image/png;base64,AA==">'
    )
    assert check(tmp_path)[0] == 0


def test_each_fault_is_named(tmp_path):
    (tmp_path / "b.html").write_text("<h1>B</h1>")
    (tmp_path / "a.html").write_text(
        '<a href="c.html">c</a> <a href="b.html#top">b</a> <script src="//cdn.example.org/x.js"></script>'
    )
    (tmp_path / "a.css").write_text("@import 'https://fonts.example.org/x.css'; a { background: url(x.png) }")
    (tmp_path / "a.svg").write_text('<svg><image href="https://example.org/x.png"/></svg>')
    assert check(tmp_path) == (
        1,
        [
            "a.html: loads //cdn.example.org/x.js, which is not part of the site",
            "a.html: c.html leads to no file",
            "a.html: b.html#top leads to no anchor",
            "a.css: loads https://fonts.example.org/x.css, which is not part of the site",
            "a.svg: loads https://example.org/x.png, which is not part of the site",
        ],
    )


def test_an_empty_folder_is_no_site(tmp_path):
    assert check(tmp_path)[0] == 1
