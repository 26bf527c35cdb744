"""Ways out of a sandbox. Each is a command that gets out where nothing holds it.

A command gets out if it prints `MARK` or the secret, if `MARK` is in a file that it must not change or comes to a
socket outside, or if the process outside is dead.
"""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolspeak.execute import StandingRules
from toolspeak.testing.outside_sockets import OutsideSockets

PYTHON = os.path.realpath(sys.executable)
MARK = "it-is-out"
SECRET = "the-canary-sings"

# Numbers of system calls that Python has no function for.
_NUMBERS = {
    "x86_64": {"unshare": 272, "setns": 308, "clone": 56, "ptrace": 101, "process_vm_readv": 310, "add_key": 248,
               "mount": 165, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "chroot": 161, "kcmp": 312},
    "aarch64": {"unshare": 97, "setns": 268, "clone": 220, "ptrace": 117, "process_vm_readv": 270, "add_key": 217,
                "mount": 40, "bpf": 280, "perf_event_open": 241, "userfaultfd": 282, "chroot": 51, "kcmp": 272},
}  # fmt: skip
_SHARED_NUMBERS = {"io_uring_setup": 425, "clone3": 435, "fsopen": 430, "pidfd_open": 434, "pidfd_getfd": 438,
           "pidfd_send_signal": 424, "open_tree": 428}  # fmt: skip

PRELUDE = """
import ctypes, os, socket, sys, errno
libc = ctypes.CDLL(None, use_errno=True)
numbers = {numbers}
def call(name, *arguments):
    arguments = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    outcome = libc.syscall(ctypes.c_long(numbers[name]), *arguments)
    return outcome if outcome >= 0 else -ctypes.get_errno()
def out(happened):
    print("{mark}" if happened else "held")
"""


@dataclass(frozen=True)
class Attempt:
    """A way out. `script` is Python if `is_python`, else a command line; both get the stage's names in braces.

    - `needs`: what it needs outside: "root", or nothing.
    - `open_to`: boundaries that do not close it, each with the reason, which the guide gives too.
    """

    name: str
    script: str
    is_python: bool = False
    needs: str = ""
    open_to: tuple[tuple[str, str], ...] = ()


def shell(name: str, script: str, **more: Any) -> Attempt:
    return Attempt(name, script, **more)


def python(name: str, script: str, **more: Any) -> Attempt:
    return Attempt(name, script, is_python=True, **more)


_ATTRIBUTES = (("landlock", "Landlock does not check changes of a file's mode, owner and times"),)

ATTEMPTS = (
    # --- files outside of the workspace
    shell("an absolute path", "echo {mark} > {outside}/file"),
    shell("a path with ..", "echo {mark} > ../outside/file"),
    shell("a link that was there", "echo {mark} > link/file"),
    shell("a link of its own", "ln -s {outside} own && echo {mark} > own/file"),
    shell("a link to a file", "ln -s {outside}/file own && echo {mark} > own"),
    shell("a hard link", "ln {outside}/file hard && echo {mark} > hard"),
    shell("to rename a file out", "echo {mark} > new && mv new {outside}/file"),
    shell("to rename a file in", "mv {outside}/secret . && echo {mark}"),
    shell("to remove a file", "rm -f {outside}/file && [ ! -e {outside}/file ] && echo {mark}"),
    shell("to append to a file", "echo {mark} >> {outside}/file"),
    python("to empty a file", "os.truncate('{outside}/file', 0); out(True)"),
    shell("to change a file's mode", "chmod 777 {outside}/file && echo {mark}", open_to=_ATTRIBUTES),
    shell("a new folder", "mkdir {outside}/folder && echo {mark}"),
    shell("a new FIFO", "mkfifo {outside}/fifo && echo {mark}"),
    shell("the root in /proc/self", "echo {mark} > /proc/self/root{outside}/file"),
    shell("the folder of a process outside", "echo {mark} > /proc/{victim}/cwd/file"),
    shell("the root of a process outside", "echo {mark} > /proc/{victim}/root{outside}/file"),
    shell("an inherited descriptor", "cat /proc/self/fd/{descriptor} /dev/fd/{descriptor}"),
    shell("a descriptor of a process outside", "cat /proc/{victim}/fd/9"),
    shell("a file in the shared memory", "echo {mark} > {shared}"),
    # --- what governs programs outside
    shell("a hook of git", "echo {mark} > .git/hooks/pre-commit"),
    shell("a new hook of git", "mkdir -p .git/hooks; echo {mark} > .git/hooks/post-checkout"),
    shell("git's folder, renamed", "mv .git g && mkdir -p .git/hooks && echo {mark} > .git/hooks/pre-commit"),
    shell("hooks, linked", "rm -rf .git/hooks && mkdir h && echo {mark} > h/pre-commit && ln -s ../h .git/hooks"),
    shell("git's configuration", "echo {mark} >> .git/config"),
    shell("git's own command", "git config core.fsmonitor {mark}"),
    shell("the file of rules", "echo {mark} > rules.json"),
    shell("the file of rules, replaced", "echo {mark} > new && mv -f new rules.json"),
    shell("the journal", "echo {mark} >> {journal}"),
    shell("to read the journal", "cat {journal}"),
    shell("the configuration", "mkdir -p .toolspeak; echo {mark} > .toolspeak/config.toml"),
    shell("a list of MCP servers", "echo {mark} > .mcp.json"),
    shell("a start file of the shell", "echo {mark} >> $HOME/.bashrc"),
    shell("a key", "cat $HOME/.ssh/id_test"),
    # --- the network
    python("TCP", "socket.create_connection(('127.0.0.1', {tcp}), 5).sendall(b'{mark}')"),
    python("UDP", "socket.socket(2, 2).sendto(b'{mark}', ('127.0.0.1', {udp}))"),
    python("UDP as a DNS request", "socket.socket(2, 2).sendto(b'\\0\\1{mark}.example', ('127.0.0.1', {udp}))"),
    python("a socket in a file", "s = socket.socket(1, 1); s.connect('{unix}'); s.sendall(b'{mark}')"),
    python("a datagram to a socket in a file", "socket.socket(1, 2).sendto(b'{mark}', '{datagram}')"),
    python("an abstract socket", "s = socket.socket(1, 1); s.connect('\\0{abstract}'); s.sendall(b'{mark}')"),
    shell("bash's own TCP", "bash -c 'echo {mark} > /dev/tcp/127.0.0.1/{tcp}'"),
    python("a raw socket", "socket.socket(17, 3); out(True)", needs="root"),
    # --- processes outside
    shell("a signal", "kill -9 {victim}"),
    python("a signal by descriptor", "call('pidfd_send_signal', call('pidfd_open', {victim}, 0), 9, None, 0)"),
    shell("its environment", "cat /proc/{victim}/environ"),
    shell("any environment", "cat /proc/[0-9]*/environ"),
    shell("the environment of what started it", "cat /proc/$PPID/environ | tr '\\0' '\\n' | grep {parent_secret}"),
    python("ptrace", "out(call('ptrace', 16, {victim}, 0, 0) == 0)"),
    python("to read memory", "out(call('process_vm_readv', {victim}, None, 0, None, 0, 0) == 0)"),
    shell("the file of its memory", "exec 3< /proc/{victim}/mem && echo {mark}"),
    python("its descriptor", "out(call('pidfd_getfd', call('pidfd_open', {victim}, 0), 9, 0) >= 0)"),
    python(
        "its limits",
        "import resource; resource.prlimit({victim}, resource.RLIMIT_CORE, (0, 0)); out(True)",
    ),
    # --- the kernel
    python("a user namespace", "out(call('unshare', 0x10000000) == 0)"),
    shell("a user namespace by a program", "unshare -Ur true && echo {mark}"),
    python("a new one by clone", "p = call('clone', 0x10000011, 0, 0, 0, 0); p == 0 and os._exit(0); out(p > 0)"),
    python("another's namespace", "out(call('setns', call('pidfd_open', {victim}, 0), 0x40000000) == 0)", needs="root"),
    # Of a file system that does not exist: nothing is mounted where it is allowed.
    python("a mount", "out(call('mount', b'none', b'/', b'no-such-type', 0, None) == -errno.ENODEV)", needs="root"),
    python("the new way to mount", "out(call('fsopen', b'tmpfs', 0) >= 0)", needs="root"),
    python("io_uring", "out(call('io_uring_setup', 4, ctypes.create_string_buffer(120)) >= 0)"),
    python("a key of the kernel", "out(call('add_key', b'user', b'{mark}', b'x', 1, -3) > 0)"),
    python("a program of the kernel", "out(call('bpf', 0, ctypes.create_string_buffer(128), 128) >= 0)", needs="root"),
    python("to watch the processor", "a = ctypes.create_string_buffer(128); a[0:8] = b'\\1\\0\\0\\0\\x70\\0\\0\\0'; "
           "out(call('perf_event_open', a, 0, -1, -1, 0) >= 0)", needs="root"),
    shell("new privileges", "grep -q 'NoNewPrivs:.*0' /proc/self/status && echo {mark}"),
    shell("root's capabilities", "grep -q 'CapBnd:.*[1-9a-f]' /proc/self/status && echo {mark}"),
    shell("a device", "mknod device c 1 5 && echo {mark}", needs="root"),
    shell("a setting of the kernel", "exec 3> /proc/sys/kernel/core_pattern && echo {mark}", needs="root"),
    shell("a key of the kernel's console", "exec 3> /proc/sysrq-trigger && echo {mark}", needs="root"),
    shell("a setting of a driver", "exec 3> /sys/kernel/mm/transparent_hugepage/enabled && echo {mark}", needs="root"),
    shell("a control group", "for g in {groups}; do ( exec 3> $g ) && echo {mark} && break; done", needs="root"),
    python("to type into the terminal", "import fcntl, pty, termios; os.setsid(); m, s = pty.openpty(); "
           "fcntl.ioctl(s, termios.TIOCSCTTY, 0); fcntl.ioctl(s, termios.TIOCSTI, b'x'); out(True)", needs="root"),
    python("shared memory by key", "libc.shmat.restype = ctypes.c_void_p; i = libc.shmget({key}, 0, 0); "
           "p = libc.shmat(i, None, 0o10000); print(ctypes.string_at(p, 16).decode())"),
)  # fmt: skip


class EscapeStage:
    """A workspace with what must not be touched around it, listening sockets, and a process outside."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self.workspace, self.outside = folder, folder / "workspace", folder / "outside"
        self.journal = folder / "state" / "journal.db"
        self.home = home
        for each in (self.workspace / ".git" / "hooks", self.outside, self.journal.parent, home / ".ssh"):
            each.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "init", "-q", str(self.workspace)], check=True)
        (self.outside / "file").write_text("old")
        (self.outside / "secret").write_text(SECRET)
        self.journal.write_text(SECRET)
        (home / ".bashrc").write_text("# old\n")
        (home / ".ssh" / "id_test").write_text(SECRET)
        (self.workspace / "link").symlink_to(self.outside)
        (self.workspace / "rules.json").write_text(StandingRules([]).dumps())
        self.shared_file = Path(f"/dev/shm/{folder.name}-{os.getpid()}")
        self.shared_file.write_text("old")
        self.sockets = OutsideSockets(self.outside)
        secret = os.open(self.outside / "secret", os.O_RDONLY)
        os.set_inheritable(secret, True)
        self.descriptor = secret
        # It says when its descriptor is open, and then waits for a line that never comes.
        self.victim = subprocess.Popen(
            ["/bin/sh", "-c", f"exec 9< {self.outside}/secret; echo open; read line"],
            env={"CANARY": SECRET},
            cwd=self.outside,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.victim.stdout
        assert self.victim.stdout.readline() == b"open\n"
        self.key = os.getpid() << 8 | 7
        self._libc = ctypes.CDLL(None)
        self._libc.shmat.restype = ctypes.c_void_p
        self._segment = self._libc.shmget(self.key, 4096, 0o1666)
        memory = self._libc.shmat(self._segment, None, 0)
        ctypes.memmove(memory, SECRET.encode(), len(SECRET))

    def command(self, attempt: Attempt) -> str:
        groups = [*Path("/sys/fs/cgroup").glob("cgroup.procs"), *Path("/sys/fs/cgroup").glob("*/cgroup.procs")]
        names = {
            "mark": MARK, "outside": self.outside, "victim": self.victim.pid, "descriptor": self.descriptor,
            "journal": self.journal, "tcp": self.sockets.tcp, "udp": self.sockets.udp, "unix": self.sockets.stream,
            "datagram": self.sockets.datagram, "abstract": self.sockets.abstract, "key": self.key,
            "shared": self.shared_file, "groups": " ".join(map(str, groups)), "parent_secret": SECRET,
        }  # fmt: skip
        script = attempt.script.format(**names)
        if not attempt.is_python:
            return script
        numbers = {**_SHARED_NUMBERS, **_NUMBERS[platform.machine()]}
        (self.workspace / "attempt.py").write_text(PRELUDE.format(numbers=numbers, mark=MARK) + script + "\n")
        return f"{PYTHON} -I -S attempt.py 2>/dev/null"  # a traceback would quote the script

    def is_out(self, output: str) -> bool:
        """Whether a command that has ended got out. Looks everywhere."""
        target_files = [
            *self.outside.glob("file*"), *(self.workspace / ".git" / "hooks").glob("*"), self.journal, self.shared_file,
            *(self.workspace / name for name in (".git/config", "rules.json", ".mcp.json", ".toolspeak/config.toml")),
            self.home / ".bashrc",
        ]  # fmt: skip
        has_changed = any(MARK in file.read_text("utf-8", "replace") for file in target_files if file.is_file())
        with suppress(subprocess.TimeoutExpired):
            self.victim.wait(0.05)
        has_arrived = any(MARK.encode() in each for each in self.sockets.arrivals())
        return MARK in output or SECRET in output or has_changed or has_arrived or self.victim.returncode is not None

    def close(self) -> None:
        self.victim.kill()
        self.victim.communicate()
        self.sockets.close()
        os.close(self.descriptor)
        self.shared_file.unlink(missing_ok=True)
        self._libc.shmctl(self._segment, 0, None)
