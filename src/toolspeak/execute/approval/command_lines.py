"""Command lines for /bin/sh as rules see them: which commands one runs, and how each begins.

Not every line that sh takes is read: only words, quotes, and `;`, `&&`, `||`, `|` and line breaks between commands.
Whatever else gives a character a meaning (`$`, backticks, backslashes, redirections, groups, `&`, `#`, `~`, braces)
makes the line one that no rule fits. Parsers of bash answer another question: dash reads `a &> b` as `a &` and
`> b`, and `$'…'` as a dollar sign. `shlex` does not tell a quoted `;` from one between commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from toolspeak.errors import ConfigurationError

_TOKEN = re.compile(
    r"""(?P<blank>[ \t]+)
      | (?P<silenced>(?:[12]?>>?[ ]?/dev/null|2>&1)(?![^ \t\n;|&]))   # output to nowhere, or both kinds together
      | (?P<joint>&&|\|\||[;|\n])
      | (?P<word>(?:[A-Za-z0-9_@%+=:,./*?-]|'[^'\n]*'|"[^"$`\\\n]*")++)(?!>)""",
    re.VERBOSE,
)
_QUOTATION = re.compile(r"""'([^']*)'|"([^"]*)\"""")


def line_in_folder(line: str, cwd: object) -> str:
    """The command line of a call, with the folder of its argument `cwd`: it begins with `cd` then, so that a rule for
    commands does not allow them in other folders."""
    return f"cd {shlex.quote(cwd)} && {line}" if isinstance(cwd, str) and cwd else line


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_RESERVED_WORDS = _words("if then else elif fi do done case esac while until for in time function select coproc")

_RUNS_OTHERS = _words(
    """
    . source eval exec command builtin alias unalias export set unset trap hash enable readonly local declare typeset
    env envdir envuidgid setuidgid chpst direnv dotenv nix-shell nix guix flatpak snap systemd-run systemd-inhibit
    sudo doas su sg newgrp runuser run0 pkexec capsh setpriv runcon chroot proot fakeroot fakechroot nsenter unshare
    bwrap firejail cgexec machinectl ip:netns setsid nohup nice ionice chrt choom taskset numactl prlimit softlimit
    cpulimit schedtool setarch linux32 linux64 timeout time stdbuf unbuffer faketime torsocks torify proxychains
    proxychains4 rlwrap script expect ssh-agent sshpass dbus-run-session dbus-launch xvfb-run xterm
    xargs parallel sem find fd fdfind watch watchexec entr flock at batch crontab nodemon hyperfine ccache distcc
    strace ltrace gdb lldb rr valgrind perf
    sh bash rbash dash ash yash mksh zsh ksh fish csh tcsh elvish nu xonsh busybox toybox pwsh
    python pypy ipython ptpython bpython jupyter perl ruby irb node nodejs deno bun tsx ts-node php lua luajit tclsh
    wish R Rscript julia octave osascript java jshell scala kotlin groovy ghci runghc m4 dc gnuplot rpm rpmbuild
    sqlite3 psql mysql mariadb mongosh tex latex pdflatex xelatex luatex lualatex
    awk gawk mawk nawk sed ed ex vi vim nvim view rview gvim nano pico emacs emacsclient less more man screen tmux
    tar rsync ssh autossh mosh scp sftp ftp lftp telnet socat nc ncat
    npx bunx pnpx uvx pipx tox nox hatch pdm rye pixi micromamba mamba volta nvm asdf mise corepack just
    timeit pdb cProfile profile runpy trace code
    gh:alias gh:extension
    git:config git:rebase git:bisect git:submodule git:filter-branch git:difftool git:mergetool git:clone git:hook
    git:send-email git:instaweb git:web--browse git:for-each-repo
    """
)
"""Programs that run what their arguments or their input say, and builtins that change what later words mean."""

_BY_SUBCOMMAND = _words(
    """
    git hg svn jj gh glab docker podman kubectl helm npm pnpm yarn uv pip poetry conda cargo rustup go dotnet mvn
    gradle bundle composer mix systemctl apt apt-get brew dnf yum terraform aws gcloud az
    """
)
"""Programs whose second word says what they do. An option before it can make it anything (`git -c alias.x=…`)."""

_THEN_ANOTHER = _words(
    """
    python:-m uv:run uv:tool npm:run npm:exec npm:x pnpm:run pnpm:exec pnpm:dlx yarn:run yarn:exec yarn:dlx poetry:run
    conda:run bundle:exec mix:run docker:run docker:exec docker:compose podman:run podman:exec kubectl:exec kubectl:run
    cargo:run go:run go:generate dotnet:run dotnet:exec
    """
)
"""Programs whose first argument precedes the name of what they run."""

_OPTIONS_THAT_RUN = {
    program: re.compile(pattern)
    for programs, pattern in {
        "git": r"-c|-\w*O|--conf|--ex|--op|--out|--rece|--upl",
        "make gmake": r"-\w*E|--ev|[^-].*=",  # a variable may be `X:=$(shell …)`, and stands in what a rule gives to sh
        "go": r"--?(exec|toolexec|vettool|ldflags)",
        "cargo": r"--conf",
        "npm pnpm yarn": r"--(script-)?shell|--node-o",
        "apt apt-get": r"-\w*[co]|--op|--conf",
        "cmake": r"-P|-E",
        "gcc g++ cc c++ clang clang++": r"-wrapper|-fplugin|-B|--?specs",
        "rg": r"--pre|--hostname-bin",
        "sort": r"--comp",
        "wget": r"-\w*e|--exec|--use-a",
        "zip": r"-\w*TT|--un",
    }.items()
    for program in programs.split()
}
"""Words that make a program run others, or write to a given place; some programs accept abbreviated options."""

_PLAIN = re.compile(r"[a-z][a-z0-9_:-]*")
"""A word that is likelier a subcommand than a file."""


def commands_of(line: str) -> tuple[tuple[str, ...], ...] | None:
    """The words of each command that /bin/sh runs for this line; None if that is not certain."""
    commands: list[list[str]] = [[]]
    at, line = 0, line.strip(" \t\n")
    while at < len(line):
        token = _TOKEN.match(line, at)
        if token is None:
            return None
        at = token.end()
        if token.lastgroup == "joint":
            commands.append([])
        elif token.lastgroup == "word":
            text = token[0]
            if not commands[-1] and (text in _RESERVED_WORDS or any(mark in text for mark in "=*?")):
                return None  # a control structure, an assignment, a program that a pattern names
            commands[-1].append(_QUOTATION.sub(lambda quotation: quotation[1] or quotation[2] or "", text))
    return tuple(map(tuple, commands)) if all(commands) else None


def prefix_words(prefix: str) -> tuple[str, ...]:
    """The words of a prefix that a rule may hold. Raises ConfigurationError for one under which any command could
    run."""
    commands = commands_of(prefix) or ()
    if len(commands) != 1 or "*" in prefix or "?" in prefix:
        raise ConfigurationError(
            f"{prefix!r} is not how one plain command begins: write its first words, as in 'git status'"
        )
    words = rest = commands[0]
    while rest[1:] and f"{_name(rest[0])}:{rest[1]}" in _THEN_ANOTHER:
        rest = rest[2:]
        if not rest or not _PLAIN.fullmatch(rest[0]):
            raise ConfigurationError(f"commands that begin with {prefix!r} run whatever follows it: name that too")
    first, argument = rest[0], rest[1] if len(rest) > 1 else ""
    program = _name(first)
    if not program or "/" in program or {program, first, f"{program}:{argument}"} & _RUNS_OTHERS:
        raise ConfigurationError(f"commands that begin with {prefix!r} can run any other: allow each one separately")
    if program in ("cd", "pushd") and not argument:
        raise ConfigurationError(f"{prefix!r} does not say where to: what runs there would depend on it")
    if program in _BY_SUBCOMMAND and not _PLAIN.fullmatch(argument):
        raise ConfigurationError(
            f"{prefix!r} does not say what {program} does: its second word does, as in 'git status'"
        )
    return words


def prefixes_of(line: str) -> tuple[str, ...]:
    """How the commands of a line begin, as prefixes to keep: one for each; none if one of them may not have any."""
    prefixes: dict[str, None] = {}
    for words in commands_of(line) or ():
        for length in range(1, len(words) + 1):
            prefix = shlex.join(words[:length])
            try:
                prefix_words(prefix)
            except ConfigurationError:
                continue
            if length == 1 and len(words) > 1 and _PLAIN.fullmatch(words[1]):
                prefix = shlex.join(words[:2])
            prefixes[prefix] = None
            break
        else:
            return ()
    return tuple(prefixes) if all_begin(line, prefixes) else ()


def all_begin(line: str, prefixes: Iterable[str]) -> bool:
    """Whether each of the line's commands begins with the words of one of these."""
    prefixes_so_far: list[tuple[str, ...]] = []
    for prefix in prefixes:
        try:
            prefixes_so_far.append(prefix_words(prefix))
        except ConfigurationError:
            continue  # of a file that was written by hand
    commands = commands_of(line) or ()
    return bool(commands) and all(_is_under(words, prefixes_so_far) for words in commands)


def _is_under(words: tuple[str, ...], prefixes: list[tuple[str, ...]]) -> bool:
    for at, program in enumerate(words, 1):  # the first word may be `uv run`
        runs = _OPTIONS_THAT_RUN.get(program) or _OPTIONS_THAT_RUN.get(_name(program))
        if runs is not None and any(map(runs.match, words[at:])):
            return False
    return any(words[: len(prefix)] == prefix for prefix in prefixes)


def _name(program: str) -> str:
    """Without a version: python3.12, pip3."""
    return program.rstrip("0123456789.-") or program
