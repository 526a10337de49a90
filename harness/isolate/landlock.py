"""python -I -S landlock.py HOW COMMAND...: becomes COMMAND with fewer rights. HOW is JSON, made by `enclose`.

Limits come first. Then bubblewrap, with a filter of system calls, where HOW has its arguments; else Landlock with the
same filter, in this very process. Started by its path: it imports nothing but the standard library, and of that what
starts quickly. Numbers are of the kernel's headers: linux/landlock.h, linux/seccomp.h, linux/bpf_common.h.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import struct
import sys
from typing import Any

_SYSCALL = {"landlock_create_ruleset": 444, "landlock_add_rule": 445, "landlock_restrict_self": 446}
_VERSION_FLAG = 1
_BENEATH = 1
# Access rights of landlock.h, with the version that brought them.
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read file, read folder
_LIST = 1 << 3  # see what is in a folder
_WRITE_FILE = 1 << 1
_CHANGE = sum(1 << bit for bit in range(1, 13)) & ~_READ  # write, remove and make what there is, but for the later ones
_REFER, _TRUNCATE, _IOCTL = (1 << 13, 2), (1 << 14, 3), (1 << 15, 5)
_NETWORK = (0b11, 4)  # bind and connect TCP: handled and never granted
_SCOPES = (0b11, 6)  # abstract UNIX sockets, and signals to who is outside
_FILES = _READ & ~_LIST | _WRITE_FILE | _TRUNCATE[0] | _IOCTL[0]  # what a rule for no folder may have
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2

# A filter's words: load an argument, jump if, return.
_LOAD, _EQUAL, _AT_LEAST, _ANY, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_NUMBER, _ARCH, _FIRST, _SECOND = 0, 4, 16, 24  # of struct seccomp_data, its low halves
_NEW_NAMESPACES = 0x7E020000 | 0x80  # CLONE_NEW*, of time too
_UNIX = 1  # AF_UNIX
_TERMINAL = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX, which type for others
_ARCHES = {
    "x86_64": (
        0xC000003E,
        {
            "socket": 41, "connect": 42, "clone": 56, "clone3": 435, "ioctl": 16, "ptrace": 101,
            "process_vm_readv": 310, "process_vm_writev": 311, "mount": 165, "umount2": 166, "pivot_root": 155,
            "unshare": 272, "setns": 308,
            "add_key": 248, "request_key": 249, "keyctl": 250, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323,
            "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "kexec_load": 246,
            "kexec_file_load": 320, "init_module": 175, "finit_module": 313, "delete_module": 176, "reboot": 169,
            "swapon": 167, "swapoff": 168, "acct": 163, "open_by_handle_at": 304, "iopl": 172, "ioperm": 173,
            "settimeofday": 164, "clock_settime": 227, "adjtimex": 159, "clock_adjtime": 305, "syslog": 103,
            "quotactl": 179, "chroot": 161, "move_mount": 429, "open_tree": 428, "fsopen": 430, "fsconfig": 431,
            "fsmount": 432, "fspick": 433, "mount_setattr": 442, "pidfd_getfd": 438, "kcmp": 312,
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            "socket": 198, "connect": 203, "clone": 220, "clone3": 435, "ioctl": 29, "ptrace": 117,
            "process_vm_readv": 270, "process_vm_writev": 271, "mount": 40, "umount2": 39, "pivot_root": 41,
            "unshare": 97, "setns": 268,
            "add_key": 217, "request_key": 218, "keyctl": 219, "bpf": 280, "perf_event_open": 241, "userfaultfd": 282,
            "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "kexec_load": 104,
            "kexec_file_load": 294, "init_module": 105, "finit_module": 273, "delete_module": 106, "reboot": 142,
            "swapon": 224, "swapoff": 225, "acct": 89, "open_by_handle_at": 265, "settimeofday": 170,
            "clock_settime": 112, "adjtimex": 171, "clock_adjtime": 266, "syslog": 116, "quotactl": 60, "chroot": 51,
            "move_mount": 429, "open_tree": 428, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
            "mount_setattr": 442, "pidfd_getfd": 438, "kcmp": 272,
        },
    ),
}  # fmt: skip
_X32 = 0x40000000  # numbers from here on are x86_64's other table


def version() -> int:
    """Landlock's version here, 0 where there is none."""
    found = int(_libc().syscall(_SYSCALL["landlock_create_ruleset"], None, 0, _VERSION_FLAG))
    return max(0, found)


def system_call_filter(gpu: bool) -> bytes:
    """A program for seccomp that refuses the calls above, for this machine. Raises KeyError on another kind.

    CUDA's driver will not start without a UNIX socket; with `gpu` there are those, which can be connected to nothing.
    """
    arch, numbers = _ARCHES[os.uname().machine]
    special = {"clone", "clone3", "ioctl", *(["socket"] if gpu else [])}
    refused = sorted(number for name, number in numbers.items() if name not in special)
    eperm = _word(_RETURN, _REFUSE | _EPERM)
    lines = [
        _word(_LOAD, _ARCH), _word(_EQUAL, arch, 1, 0), eperm,  # 32-bit programs have numbers of their own
        _word(_LOAD, _NUMBER), _word(_AT_LEAST, _X32, 0, 1), eperm,
        # glibc falls back to clone, whose flags can be looked at.
        _word(_EQUAL, numbers["clone3"], 0, 1), _word(_RETURN, _REFUSE | _ENOSYS),
        _word(_EQUAL, numbers["clone"], 0, 4), _word(_LOAD, _FIRST), _word(_ANY, _NEW_NAMESPACES, 0, 1), eperm,
        _word(_RETURN, _ALLOW),
        _word(_EQUAL, numbers["ioctl"], 0, 5), _word(_LOAD, _SECOND), _word(_EQUAL, _TERMINAL[0], 1, 0),
        _word(_EQUAL, _TERMINAL[1], 0, 1), eperm, _word(_RETURN, _ALLOW),
    ]  # fmt: skip
    if gpu:
        lines += [_word(_EQUAL, numbers["socket"], 0, 4), _word(_LOAD, _FIRST), _word(_EQUAL, _UNIX, 1, 0), eperm]
        lines += [_word(_RETURN, _ALLOW)]
    for number in refused:
        lines += [_word(_EQUAL, number, 0, 1), eperm]
    return b"".join([*lines, _word(_RETURN, _ALLOW)])


def _word(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def main(how: dict[str, Any], command: list[str]) -> None:
    for name, most in how["limits"].items():
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))
    os.closerange(3, 1 << 16)
    code = system_call_filter(how.get("gpu", False))
    if "bubblewrap" in how:
        descriptor = os.memfd_create("filter", 0)
        os.write(descriptor, code)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.set_inheritable(descriptor, True)
        wrapped = [*how["bubblewrap"], "--seccomp", str(descriptor), "--", *command]
        os.execvp(wrapped[0], wrapped)
    _restrict(how)
    _filter(code)
    os.execvpe(command[0], command, os.environ)


def _restrict(how: dict[str, list[str]]) -> None:
    libc, known = _libc(), version()
    extra = sum(right for right, since in (_REFER, _TRUNCATE, _IOCTL) if known >= since)
    handled = _READ | _CHANGE | extra
    network = _NETWORK[0] if known >= _NETWORK[1] else 0
    scopes = _SCOPES[0] if known >= _SCOPES[1] else 0
    fields = [handled, network, scopes][: 1 + (known >= _NETWORK[1]) + (known >= _SCOPES[1])]
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = _checked(libc.syscall(_SYSCALL["landlock_create_ruleset"], attributes, len(attributes), 0))
    device = (_WRITE_FILE | 1 << 2 | _IOCTL[0] | _TRUNCATE[0]) & handled
    rights_of = {"read": _READ, "list": _LIST, "write": handled & ~_IOCTL[0], "devices": device}
    for name, rights in rights_of.items():
        for path in how[name]:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            granted = rights if os.path.isdir(path) else rights & _FILES
            rule = struct.pack("=Qi", granted, descriptor)
            _checked(libc.syscall(_SYSCALL["landlock_add_rule"], ruleset, _BENEATH, rule, 0))
            os.close(descriptor)
    _checked(libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(libc.syscall(_SYSCALL["landlock_restrict_self"], ruleset, 0))
    os.close(ruleset)


def _filter(code: bytes) -> None:
    words = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(words))
    _checked(_libc().prctl(_SET_SECCOMP, _FILTER, program, 0, 0))


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
