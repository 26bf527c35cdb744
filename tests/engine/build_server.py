"""Builds llama.cpp's server, once, and prints where it is.

    python build_server.py REQUIREMENTS CACHE

The source is the one that the Python package `llama-cpp-python` brings, pinned with its hash in REQUIREMENTS: package
registries have no ready server. What was built is kept in CACHE under a name that follows the source and the flags.
Needs a C++ compiler; cmake and ninja come from the environment this runs in (requirements/engine.txt).
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

BIN = Path(sys.executable).parent
FLAGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DCMAKE_C_FLAGS_RELEASE=-O1 -DNDEBUG",  # a third less to build, and the model is tiny
    "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG",
    "-DGGML_NATIVE=OFF",  # a cache may serve another processor
    "-DGGML_OPENMP=OFF",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
)


def run(*command: str | Path) -> None:
    """With its output on standard error; ends the program if it fails."""
    done = subprocess.run([str(part) for part in command], stdout=sys.stderr, check=False)
    if done.returncode:
        raise SystemExit(f"llama-server could not be built: {command[0]} ended with {done.returncode} (see above)")


def source(requirements: Path, folder: Path) -> Path:
    """Fetches llama.cpp's source below `folder`."""
    # pip asks the package for its metadata, which its build backend (in requirements/engine.txt) tells.
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet")
    wanted = ("--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--require-hashes", "-r", requirements)
    run(*pip, *wanted, "--dest", folder)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (source_path,) = folder.glob("*/vendor/llama.cpp")
    return source_path


def build(requirements: Path, target: Path) -> None:
    if not any(map(shutil.which, filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")))):
        raise SystemExit("llama-server is built from source, which needs a C++ compiler: apt-get install g++ (as root)")
    print("building llama-server, once: about six minutes of processor time", file=sys.stderr)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="building-") as name:
        folder = Path(name)
        out = folder / "build"
        ninja = f"-DCMAKE_MAKE_PROGRAM={BIN / 'ninja'}"
        run(BIN / "cmake", "-Wno-dev", "-G", "Ninja", ninja, "-S", source(requirements, folder), "-B", out, *FLAGS)
        run(BIN / "cmake", "--build", out, "--target", "llama-server", "--parallel", str(os.cpu_count() or 2))
        (out / "bin" / "llama-server").replace(target)  # whole or not there, also with two builds at once


def main() -> None:
    requirements, cache = Path(sys.argv[1]), Path(sys.argv[2]).absolute()
    what = hashlib.sha256(repr((requirements.read_bytes(), FLAGS, platform.system(), platform.machine())).encode())
    target = cache / f"llama-server-{what.hexdigest()[:16]}"
    if not target.exists():
        build(requirements, target)
    print(target)


if __name__ == "__main__":
    main()
