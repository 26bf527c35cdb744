"""Fetches the chat templates that llama.cpp keeps for its tests, once, and prints the folder they are in.

    python fetch_templates.py REQUIREMENTS CACHE

They come in the source archive of the Python package `llama-cpp-python`, pinned with its hash in REQUIREMENTS. What was
unpacked is kept in CACHE under a name that follows the pin.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

FOLDER = "vendor/llama.cpp/models/templates/"


def fetch(requirements: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetching-") as name:
        folder = Path(name)
        # pip asks the package for its metadata, which its build backend (in requirements/engine.txt) tells.
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps")
        options = ("--no-build-isolation", "--no-binary", ":all:", "--require-hashes", "-r", str(requirements))
        download = subprocess.run([*pip, *options, "--dest", name], stdout=sys.stderr, check=False)
        if download.returncode:
            raise SystemExit(
                f"the chat templates could not be fetched: pip ended with {download.returncode} (see above)"
            )
        (archive,) = folder.glob("*.tar.gz")
        templates = folder / "templates"
        templates.mkdir()
        with tarfile.open(archive) as tar:
            for member in tar:
                _, _, file = member.name.partition(FOLDER)
                content = tar.extractfile(member) if file.endswith(".jinja") else None
                if content is not None:
                    (templates / Path(file).name).write_bytes(content.read())
        templates.replace(target)  # whole or not there, also with two at once


def main() -> None:
    requirements, cache = Path(sys.argv[1]), Path(sys.argv[2]).absolute()
    target = cache / f"chat-templates-{hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]}"
    if not target.exists():
        fetch(requirements, target)
    print(target)


if __name__ == "__main__":
    main()
