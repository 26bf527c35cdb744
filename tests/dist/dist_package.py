"""The wheel and the sdist of `make dist`: what they hold, and the wheel alone on each Python of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.metadata import Metadata

ROOT = Path(__file__).parents[2]
FILES = Path(os.environ["DIST"]).resolve()
(WHEEL,) = FILES.glob("*.whl")
(SDIST,) = FILES.glob("*.tar.gz")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSIONS = ["3.11", "3.12", "3.13", "3.14"]


def tracked_files() -> set[str]:
    listing = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {name.removeprefix("src/") for name in listing.splitlines()}


def test_the_wheel_holds_the_package_and_nothing_else():
    names = set(zipfile.ZipFile(WHEEL).namelist())
    of_package = {name for name in names if ".dist-info/" not in name and not name.endswith("/")}
    assert of_package == tracked_files()
    assert "toolspeak/py.typed" in names


def test_the_sdist_holds_what_a_build_needs():
    with tarfile.open(SDIST) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in tracked_files()} | {"pyproject.toml", "README.md", "LICENSE"} <= names


def test_the_metadata_is_valid_and_complete():
    archive = zipfile.ZipFile(WHEEL)
    (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Metadata.from_email(archive.read(path), validate=True)
    assert metadata.name == "toolspeak"
    assert str(metadata.version) == PROJECT["version"]
    assert metadata.license_expression == "MIT"
    assert metadata.description == (ROOT / "README.md").read_text(encoding="utf-8")
    assert str(metadata.requires_python) == ">=3.11"
    assert {f"Programming Language :: Python :: {version}" for version in VERSIONS} <= set(metadata.classifiers or [])
    assert set(metadata.provides_extra or []) == set(PROJECT["optional-dependencies"])


def pythons() -> Iterator[tuple[str, str]]:
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for version in VERSIONS:
        candidates = [shutil.which(f"python{version}"), *map(str, sorted(versions.glob(f"{version}.*/bin/python")))]
        for python in filter(None, candidates):
            line = "import sys, ensurepip; print('%d.%d' % sys.version_info[:2])"
            answer = subprocess.run([python, "-c", line], capture_output=True, text=True, check=False)
            if answer.stdout.strip() == version:
                yield version, python
                break


@pytest.mark.parametrize(("version", "python"), [pytest.param(*each, id=each[0]) for each in pythons()])
def test_the_wheel_alone_works(version: str, python: str, tmp_path: Path):
    bin_folder = tmp_path / "venv" / "bin"
    # Of the environment only what pip needs to reach an index: nothing of this clone is importable.
    environment = {
        name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HTTP", "NO_"))
    }
    environment |= {"PATH": f"{bin_folder}:/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}

    def run(*command: str | Path) -> str:
        process = subprocess.run(
            [str(part) for part in command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout

    run(python, "-m", "venv", tmp_path / "venv")
    pip = [bin_folder / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run(*pip, "--require-hashes", "-r", ROOT / "requirements" / "runtime.txt")
    run(*pip, "--no-deps", "--no-index", WHEEL)
    run(bin_folder / "python", "-m", "pip", "check")
    assert run("toolspeak", "--version") == f"toolspeak, version {PROJECT['version']}\n"
    assert f"works on Python {version}." in run(
        bin_folder / "python", "-W", "error", Path(__file__).with_name("smoke.py"), tmp_path
    )
    assert run("toolspeak", "demo").count("│ tests pass │") == 3
