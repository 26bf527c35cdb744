"""The system calls that no sandboxed command may make, as a seccomp filter (BPF). Linux only."""

from __future__ import annotations

import errno
import platform
import struct
from functools import cache

from toolspeak.data.values import quick

_LOAD, _EQUAL, _ANY_OF, _JUMP, _RETURN = 0x20, 0x15, 0x45, 0x05, 0x06  # BPF: LD|W|ABS, JEQ, JSET, JA, RET|K
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000  # SECCOMP_RET_…
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data

_NEW_NAMESPACES = 0x7E020080  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, NEWTIME
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # they type into a terminal

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16

# Numbers from 424 on are the same on every architecture.
_SHARED_NUMBERS = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "pidfd_getfd": 438, "mount_setattr": 442,
}  # fmt: skip
_CLONE3 = 435


@quick()
class _Machine:
    """An architecture: its number for seccomp, and its numbers of system calls."""

    audit: int
    socket: int
    ioctl: int
    unshare: int
    clone: int
    prlimit: int
    denied_calls: tuple[int, ...]
    shared_memory: tuple[int, ...]


_MACHINES = {
    # denied: ptrace, process_vm_readv and _writev, kcmp, keyctl, add_key, request_key, bpf, perf_event_open,
    # userfaultfd, mount, umount2, pivot_root, setns, open_by_handle_at
    # shared_memory: shmget, shmat, shmctl, semget, semop, semctl, msgget, msgsnd, msgrcv, msgctl, semtimedop, mq_open
    "x86_64": _Machine(
        0xC000003E,
        *(41, 16, 272, 56, 302),
        (101, 310, 311, 312, 250, 248, 249, 321, 298, 323, 165, 166, 155, 308, 304),
        (29, 30, 31, 64, 65, 66, 68, 69, 70, 71, 220, 240),
    ),
    "aarch64": _Machine(
        0xC00000B7,
        *(198, 29, 97, 220, 261),
        (117, 270, 271, 272, 219, 217, 218, 280, 241, 282, 40, 39, 41, 268, 265),
        (194, 196, 195, 190, 193, 191, 186, 189, 188, 187, 192, 180),
    ),
}


def is_known_machine() -> bool:
    """Whether there is a filter for this machine's architecture."""
    return platform.machine() in _MACHINES


@cache
def seccomp_filter(families: tuple[int, ...], *, shared_memory: bool = True) -> bytes:
    """The filter as an array of `struct sock_filter`.

    `families`: the families of sockets that a command may make. `shared_memory`: it may use System V's and POSIX's
    memory, semaphores and queues, which processes outside may use too unless it has a namespace of its own for them.

    It denies what reaches into other processes (ptrace and its like, their limits), what the kernel's other checks do
    not see (io_uring), new namespaces and mounts, keys, and to type into a terminal. Pairs of connected sockets are
    allowed.
    """
    machine = _MACHINES[platform.machine()]
    program: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, machine.audit),
        (_RETURN, 0, 0, _KILL),  # numbers of another architecture would mean other calls
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine.audit == _MACHINES["x86_64"].audit:
        program += [(_ANY_OF, 0, 1, 0x40000000), _refusal(errno.ENOSYS)]  # x32 has numbers of its own
    denied_calls = (*machine.denied_calls, *_SHARED_NUMBERS.values(), *(() if shared_memory else machine.shared_memory))
    # One refusal for all of them: each system call of a command runs through this list.
    program += [(_EQUAL, len(denied_calls) - place, 0, number) for place, number in enumerate(denied_calls)]
    program += [(_JUMP, 0, 0, 1), _refusal(errno.EPERM)]
    # Its flags lie in memory, which a filter cannot read. Libraries then use `clone`.
    program += [(_EQUAL, 0, 1, _CLONE3), _refusal(errno.ENOSYS)]
    for number in (machine.clone, machine.unshare):
        # CLONE_NEWTIME (0x80) is a part of the signal number in the flags of `clone`.
        flags = _NEW_NAMESPACES if number == machine.unshare else _NEW_NAMESPACES & ~0xFF
        program += [
            (_EQUAL, 0, 4, number),
            (_LOAD, 0, 0, _ARGUMENTS),
            (_ANY_OF, 0, 1, flags),
            _refusal(errno.EPERM),
            (_RETURN, 0, 0, _ALLOW),
        ]
    program += [
        (_EQUAL, 0, 4, machine.prlimit),
        (_LOAD, 0, 0, _ARGUMENTS),
        (_EQUAL, 1, 0, 0),  # its own
        _refusal(errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 0, 5, machine.ioctl),
        (_LOAD, 0, 0, _ARGUMENTS + 8),
        (_EQUAL, 1, 0, _TIOCSTI),
        (_EQUAL, 0, 1, _TIOCLINUX),
        _refusal(errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    program += [(_EQUAL, 0, 2 + len(families), machine.socket), (_LOAD, 0, 0, _ARGUMENTS)]
    for at, family in enumerate(families):
        program.append((_EQUAL, len(families) - at, 0, family))
    program += [_refusal(errno.EACCES), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def _refusal(number: int) -> tuple[int, int, int, int]:
    """Lets the call fail with this error."""
    return (_RETURN, 0, 0, _ERRNO | number)
