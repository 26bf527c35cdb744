"""A PostgreSQL server of the tests' own: a new cluster in a temporary folder, reached by a Unix socket."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def binaries() -> Path | None:
    """Where initdb and postgres are; Debian keeps them off PATH."""
    initdb = shutil.which("initdb")
    if initdb:
        return Path(initdb).resolve().parent
    paths = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return paths[-1].parent if paths else None


@contextmanager
def postgres(listen: str = "") -> Iterator[str]:
    """The URL of an empty database on a server that ends with the block. `listen`: an address where clients of its
    network (/24) reach it too."""
    bin_folder = binaries()
    if bin_folder is None:
        reason = "PostgreSQL is not installed (apt-get install postgresql): its journal is not tested"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="tspg-") as name:
        folder = Path(name)
        if os.geteuid() == 0:
            os.chown(folder, _USER, _USER)
        data = folder / "data"
        _call(folder, bin_folder / "initdb", "-D", data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync")
        if listen:
            with (data / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {listen}/24 trust\n")
        options = f"-c listen_addresses={listen} -c unix_socket_directories={folder} -c fsync=off -c max_connections=60"
        # Its output goes to a file: the server would keep our pipes open.
        _control(folder, "-l", folder / "log", "-o", options, "start")
        try:
            yield f"postgresql://tester@/postgres?host={folder}"
        finally:
            _control(folder, "-m", "immediate", "stop")


def restart_postgres(url: str) -> None:
    """Ends the server at once, as a crash does, and starts it again."""
    folder = Path(url.partition("host=")[2].partition("&")[0])
    _control(folder, "-m", "immediate", "-l", folder / "log", "restart")


_USER = 65534  # the server refuses to run as root


def _control(folder: Path, *arguments: str | Path) -> None:
    bin_folder = binaries()
    assert bin_folder is not None
    _call(folder, bin_folder / "pg_ctl", "-D", folder / "data", "-w", "-s", *arguments)


def _call(folder: Path, *command: str | Path) -> None:
    as_user: dict[str, int] = {"user": _USER, "group": _USER} if os.geteuid() == 0 else {}
    subprocess.run(command, check=True, cwd=folder, capture_output=True, timeout=120, env={"LC_ALL": "C"}, **as_user)
