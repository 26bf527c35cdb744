"""The boundary of bubblewrap: namespaces of the kernel, in which a command sees the system read-only and no network."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager

from toolspeak.errors import SandboxError
from toolspeak.sandbox import network_forwarder
from toolspeak.sandbox.base import ConfinedProcess, Confinement, ProcessCommand
from toolspeak.sandbox.control_groups import ControlGroups
from toolspeak.sandbox.host_proxy import HostProxy
from toolspeak.sandbox.limited_start import start_limited
from toolspeak.sandbox.protected_copies import ProtectedCopies
from toolspeak.sandbox.protected_places import is_below
from toolspeak.sandbox.seccomp_filter import (
    AF_INET,
    AF_INET6,
    AF_NETLINK,
    AF_UNIX,
    is_known_machine,
    seccomp_filter,
)

_FAMILIES = (AF_UNIX, AF_INET, AF_INET6, AF_NETLINK)
_PROBE_SECONDS = 10

_PROXY, _FORWARDER = "/dev/toolspeak-proxy", "/dev/toolspeak-forwarder.py"  # where they are inside

# Files of root, who may write them without any capability. bubblewrap covers them only if their folders are writable.
_SETTINGS_IN_PROC = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi")
_READ_ONLY_BIND = "--ro-bind-try"
_SEEN_IN_RUN = ("/run/current-system", "/run/opengl-driver", "/run/wrappers")  # NixOS has its programs there

_NAMESPACES = (
    "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
)  # fmt: skip


class Bubblewrap:
    """Starts commands in namespaces of their own: processes, network, users, mounts."""

    level = "bubblewrap"

    def __init__(self, program: str, python: str, groups: ControlGroups | None) -> None:
        """`program`: the path of `bwrap`. `python`: that of a Python, which forwards to the proxy of hosts; "" without
        one."""
        self._program, self._python, self._groups = program, python, groups
        self._temporary = os.path.realpath(tempfile.mkdtemp(prefix="toolspeak-"))
        for name in ("tmp", "var-tmp", "net"):
            os.mkdir(os.path.join(self._temporary, name), 0o700)

    @staticmethod
    async def probe(program: str) -> str:
        """Why bubblewrap does not work here; "" if it does. Runs it once."""
        if not is_known_machine():
            return "there is no seccomp filter for this processor"
        command = [program, *_NAMESPACES, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--", "/bin/true"]
        try:
            # In a thread: a process of the event loop would complain if the loop is closed first, after Ctrl-C.
            process = await asyncio.to_thread(
                subprocess.run,
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=_PROBE_SECONDS,
                check=False,
            )
        except OSError as error:
            return f"{program}: {error.strerror}"
        except subprocess.TimeoutExpired:
            return f"{program} does not end"
        return "" if process.returncode == 0 else process.stderr.decode("utf-8", "replace").strip() or "it fails"

    @property
    def gaps(self) -> tuple[str, ...]:
        return () if self._groups is not None else ("memory of all its processes together",)

    @property
    def filters_hosts(self) -> bool:
        return bool(self._python)

    @asynccontextmanager
    async def start(self, command: ProcessCommand, confinement: Confinement) -> AsyncGenerator[ConfinedProcess]:
        try:
            copies = ProtectedCopies(path for path in confinement.read_only if not _is_mountable(path))
        except OSError as error:
            raise SandboxError(f"{error}: protected links may not lead to so much") from None
        async with AsyncExitStack() as parts:
            descriptors = parts.enter_context(ExitStack())
            arguments = [self._program, *_NAMESPACES, *self._mounts(confinement)]
            env, inner, proxy = {**command.env, "TMPDIR": "/tmp"}, list(command.arguments), None
            if confinement.hosts is None:
                arguments += ["--share-net", *_resolver()]
            elif confinement.hosts and self._python:
                proxy = await parts.enter_async_context(
                    HostProxy.listening(confinement.hosts, os.path.join(self._temporary, "net"))
                )
                for path, place in ((proxy.path, _PROXY), (network_forwarder.__file__, _FORWARDER)):
                    arguments += ["--ro-bind", path, place]
                env |= network_forwarder.PROXY_VARIABLES
                inner = [self._python, "-I", "-S", _FORWARDER, _PROXY, *inner]
            filter_end, info_read, info_write = self._descriptors(descriptors)
            arguments += ["--seccomp", str(filter_end), "--info-fd", str(info_write), "--chdir", command.cwd, "--"]
            inner_command = ProcessCommand(command.arguments, "/", env, command.output, command.errors, command.input)
            try:
                group, control_group = await start_limited(
                    [*arguments, *inner],
                    inner_command,
                    confinement.limits,
                    self._groups,
                    pass_fds=(filter_end, info_write),
                    leader_info=info_read,
                )
            except BaseException:
                os.close(info_read)
                raise
            descriptors.close()
            process = ConfinedProcess(group)
            try:
                yield process
            finally:
                try:
                    if control_group is not None:
                        await control_group.remove()
                finally:
                    process.notes += copies.put_back()
                    if proxy is not None:
                        process.notes += proxy.refusals

    def _descriptors(self, ours: ExitStack) -> tuple[int, int, int]:
        """The filter, to be read; and the two ends of the pipe on which bubblewrap names its child. The first and the
        last are closed with `ours`."""
        filter_end = os.memfd_create("seccomp")
        ours.callback(os.close, filter_end)
        os.write(filter_end, seccomp_filter(_FAMILIES))
        os.lseek(filter_end, 0, os.SEEK_SET)
        info_read, info_write = os.pipe()
        ours.callback(os.close, info_write)
        return filter_end, info_read, info_write

    def _mounts(self, confinement: Confinement) -> Iterator[str]:
        yield from ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
        for name in _SETTINGS_IN_PROC:
            path = f"/proc/{name}"
            if os.path.exists(path):
                yield from ("--ro-bind", path, path)
        if os.path.isdir("/run"):  # sockets of the system's services, which a read-only folder would not close
            yield from ("--size", str(1 << 20), "--tmpfs", "/run")
        for name, path in (("tmp", "/tmp"), ("var-tmp", "/var/tmp")):
            if os.path.isdir(path):
                yield from ("--bind", os.path.join(self._temporary, name), path)
        for path in _SEEN_IN_RUN:
            yield from ("--ro-bind-try", path, path)
        for path in confinement.readable:
            yield from ("--ro-bind-try", path, path)
        # A folder comes before what is in it, whatever may be done with each.
        ways = dict.fromkeys(confinement.writable, "--bind")
        for path in confinement.read_only:
            if _is_mountable(path):
                # The folders above it become mounts too: else they could be renamed, and others take their place.
                writable = [folder for folder in confinement.writable if is_below(path, folder)]
                ways |= {folder: "--bind" for folder in _between(path, writable) if folder not in ways}
                ways[path] = "--ro-bind"
        for path in confinement.hidden_paths:
            if os.path.exists(path):
                ways[path] = "--tmpfs" if os.path.isdir(path) else "--ro-bind"
        if confinement.hosts is not None:
            ways |= dict.fromkeys(_listening_sockets(), _READ_ONLY_BIND)
        for path in sorted(ways):
            if ways[path] == "--tmpfs":
                yield from ("--perms", "0500", "--tmpfs", path, "--remount-ro", path)
            else:
                is_covered = ways[path] == _READ_ONLY_BIND or path in confinement.hidden_paths
                yield from (ways[path], "/dev/null" if is_covered else path, path)

    async def aclose(self) -> None:
        shutil.rmtree(self._temporary, ignore_errors=True)


def _is_mountable(path: str) -> bool:
    """Whether a read-only mount can protect a path: it exists, and is no link, which could be replaced."""
    return os.path.exists(path) and not os.path.islink(path)


def _between(path: str, folders: Sequence[str]) -> list[str]:
    """The folders above a path that lie in one of these folders."""
    between: list[str] = []
    folder = os.path.dirname(path)
    while any(is_below(folder, each) and folder != each for each in folders):
        between.append(folder)
        folder = os.path.dirname(folder)
    return between


def _listening_sockets() -> list[str]:
    """The sockets in files that processes outside listen on, such as docker's: a read-only mount would not close
    them. Those in folders that a command does not see are left out."""
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as table:
            paths = [fields[7] for line in table if len(fields := line.rstrip("\n").split(" ", 7)) == 8]
    except OSError:
        return []
    unseen_folders = ("/run/", "/var/run/", "/dev/")
    real = {os.path.realpath(path) for path in paths if path.startswith("/") and not path.startswith(unseen_folders)}
    return [path for path in sorted(real) if os.path.exists(path) and _may_enter(os.path.dirname(path))]


def _may_enter(folder: str) -> bool:
    """Whether this user may use what is in a folder. Not asked of the system: root may, but not inside of a sandbox."""
    while folder != os.sep:
        status = os.stat(folder)
        mode = status.st_mode
        if status.st_uid == os.geteuid():
            mode >>= 6
        elif status.st_gid == os.getegid() or status.st_gid in os.getgroups():
            mode >>= 3
        if not mode & 1:
            return False
        folder = os.path.dirname(folder)
    return True


def _resolver() -> list[str]:
    """The file that names the servers of DNS: often a link into /run."""
    file = os.path.realpath("/etc/resolv.conf")
    return ["--ro-bind-try", file, file]
