"""The places that no command may change, and those that none may read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from toolspeak.data.protected_files import protected_files

# Each is run, or says what is run, by a program outside of the sandbox: git, a shell, an editor, toolspeak.
_IN_FOLDERS = (
    ".git/hooks",
    ".git/config",
    ".git/config.worktree",
    ".toolspeak",
    ".mcp.json",
    ".vscode/mcp.json",
    ".vscode/tasks.json",
    ".envrc",
)
_IN_HOME = (
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv",
    ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".inputrc", ".xprofile", ".xsession",
    ".xinitrc", ".gitconfig", ".config/git", ".config/fish", ".config/toolspeak", ".config/autostart",
    ".config/systemd", ".config/environment.d", ".pam_environment", ".ssh", ".local/bin", "bin",
)  # fmt: skip
_CREDENTIALS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".netrc", ".git-credentials", ".config/gh", ".config/git/credentials",
    ".config/gcloud", ".docker/config.json", ".pypirc", ".npmrc", ".cargo/credentials.toml", ".password-store",
    ".local/share/keyrings",
)  # fmt: skip


def read_only_places(writable: Iterable[str]) -> tuple[str, ...]:
    """What a command may not change although it lies in one of these folders (real paths): git's hooks and
    configuration, this program's files and its configuration, and the files that shells and sessions read at their
    start. Some do not exist."""
    folders = [path for path in writable if os.path.isdir(path)]
    places = [os.path.join(folder, *name.split("/")) for folder in folders for name in _IN_FOLDERS]
    places += [os.path.join(home, *name.split("/")) for home in _homes() for name in _IN_HOME]
    places += protected_files()
    # In a repository that does not exist yet there is nothing to protect: `git init` makes its own hooks.
    return tuple(
        place
        for place in dict.fromkeys(places)
        if any(is_below(place, folder) for folder in folders)
        and not (".git" in place.split(os.sep) and not os.path.isdir(place[: place.rindex(f"{os.sep}.git") + 5]))
    )


def hidden_places(readable: Sequence[str] = ()) -> tuple[str, ...]:
    """What a command may not read: journals, and the keys and passwords of other programs, unless they are in
    `readable`."""
    places = [os.path.join(home, *name.split("/")) for home in _homes() for name in _CREDENTIALS]
    places += [path for path, protection in protected_files().items() if protection.secret]
    real = (os.path.realpath(place) for place in places if os.path.exists(place))
    return tuple(place for place in dict.fromkeys(real) if not any(is_below(place, path) for path in readable))


def is_below(path: str, folder: str) -> bool:
    """Whether a path is this folder, or lies in it. Both are absolute."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _homes() -> list[str]:
    home = os.path.expanduser("~")
    return list(dict.fromkeys([home, os.path.realpath(home)])) if os.path.isabs(home) else []
