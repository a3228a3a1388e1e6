"""Becomes the job's program: the last step, inside the sandbox where there is one.

Run by path with `python -I -S -B`, so nothing but the standard library may be imported
here. The plan is read from PLAN_FD, word of success or failure goes to WORD_FD.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import struct
import sys
from typing import Any, NoReturn

PLAN_FD, WORD_FD = 3, 4
NOT_FOUND, NOT_RUNNABLE = 127, 126
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_NS_GET_USERNS = 0xB701
_SECCOMP_FILTER = 2
_NEW_NAMESPACES = 0x7E020000
# Calls that no job needs and that kernels were broken into by, or that reach beyond the
# sandbox: on x86_64, on aarch64. Without a user namespace of its own a job has no
# rights to most of them; this holds also where a kernel has a fault.
_REFUSED = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, -1),
    "iopl": (172, -1),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setns": (308, 268),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "userfaultfd": (323, 282),
}
# Column above, the kernel's name of the machine, clone, clone3, unshare.
_MACHINES = {
    "x86_64": (0, 0xC000003E, 56, 435, 272),
    "aarch64": (1, 0xC00000B7, 220, 435, 97),
}


def main() -> None:
    plan = _read_plan()
    try:
        if plan["enter"]:
            _enter(plan["enter"])
        _prepare(plan)
        program = _find(plan["argv"][0], plan["env"].get("PATH", os.defpath))
    except OSError as error:
        _say({"failed": str(error) if error.errno is None else _words(error)})
        sys.exit(NOT_FOUND)
    if plan["is_init"] and (child := os.fork()):
        _reap(child)
    _say({"ready": os.getpid()})
    _become(program, plan)


def _read_plan() -> Any:
    with open(PLAN_FD, "rb") as file:
        return json.load(file)


def _say(word: dict[str, Any]) -> None:
    os.write(WORD_FD, json.dumps(word).encode() + b"\n")


def _enter(pid: int) -> None:
    """Join the sandbox whose first process is `pid`, as a child of this process.

    Each namespace belongs to a user namespace, which is joined before it: that of the
    network to one of ours, the rest to those that bubblewrap made. The job's own is
    the last.
    """
    kinds = ("net", "ipc", "uts", "cgroup", "pid", "mnt")
    ours = {os.stat(f"/proc/self/ns/{kind}").st_ino for kind in (*kinds, "user")}
    way = []
    for kind in kinds:
        fd = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
        way += [fcntl.ioctl(fd, _NS_GET_USERNS), fd]
    inner = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    for fd in (*way, inner):
        if (number := os.fstat(fd).st_ino) in ours:
            continue
        ours.add(number)
        if libc.setns(fd, 0):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    # A pid namespace is entered by being born into it.
    if child := os.fork():
        os._exit(_code(os.waitpid(child, 0)[1]))


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def _prepare(plan: dict[str, Any]) -> None:
    if plan["user"]:
        user, group, groups = plan["user"]
        os.setgroups(groups)
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # After the change of user, which forgets it.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if plan["parent"] and os.getppid() != plan["parent"]:
        os._exit(1)
    for name, value in plan["rlimits"]:
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    os.umask(0o022)
    os.chdir(plan["cwd"])
    _refuse_calls(libc)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _refuse_calls(libc: ctypes.CDLL) -> None:
    """Have the kernel refuse what `_filter` says, for this process and all below it."""
    code = _filter(os.uname().machine)
    words = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(words))
    # An old kernel may be without; a machine we do not know has no filter.
    if code:
        libc.prctl(_PR_SET_SECCOMP, _SECCOMP_FILTER, ctypes.byref(program), 0, 0)


def _filter(machine: str) -> bytes:
    """A program of the kernel's packet filter that looks at each system call.

    It refuses the calls of a 32-bit program (another machine to the kernel, with other
    numbers), those listed above, and the making of namespaces.
    """
    if machine not in _MACHINES:
        return b""
    column, name, clone, clone3, unshare = _MACHINES[machine]
    load, equal, above, has, give = 0x20, 0x15, 0x35, 0x45, 0x06
    number, kind, flags = 0, 4, 16
    allow, refuse = 0x7FFF0000, 0x00050000
    steps = [
        (load, 0, 0, kind),
        (equal, 1, 0, name),
        (give, 0, 0, refuse | errno.ENOSYS),
        (load, 0, 0, number),
        # The numbers of x32, which x86_64 has beside its own.
        (above, 0, 1, 0x40000000),
        (give, 0, 0, refuse | errno.ENOSYS),
        # Its flags are out of a filter's sight; libraries then take `clone`.
        (equal, 0, 1, clone3),
        (give, 0, 0, refuse | errno.ENOSYS),
    ]
    for each in sorted(numbers[column] for numbers in _REFUSED.values()):
        if each >= 0:
            steps += [(equal, 0, 1, each), (give, 0, 0, refuse | errno.EPERM)]
    steps += [
        (equal, 2, 0, clone),
        (equal, 1, 0, unshare),
        (give, 0, 0, allow),
        (load, 0, 0, flags),
        (has, 0, 1, _NEW_NAMESPACES),
        (give, 0, 0, refuse | errno.EPERM),
        (give, 0, 0, allow),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _find(name: str, path: str) -> str:
    if "/" in name:
        places = [name]
    else:
        folders = [folder for folder in path.split(os.pathsep) if folder]
        places = [os.path.join(folder, name) for folder in folders]
    found = [place for place in places if os.path.isfile(place)]
    for place in found:
        if os.access(place, os.X_OK):
            return place
    if found:
        raise OSError(f"not executable: {name}")
    raise OSError(f"command not found: {name}")


def _words(error: OSError) -> str:
    return f"{error.filename or 'the job'}: {error.strerror}"


def _become(program: str, plan: dict[str, Any]) -> NoReturn:
    # Python and the guardian ignore some, and what is ignored stays so after exec.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.set_inheritable(WORD_FD, False)
    try:
        os.execve(program, plan["argv"], plan["env"])
    except OSError as error:
        # The file is there: what is missing is its interpreter.
        what = "its interpreter is not there" if error.errno == errno.ENOENT else ""
        text = f"{plan['argv'][0]}: {what or error.strerror}\n"
        os.write(2, text.encode())
        os._exit(NOT_RUNNABLE)


def _reap(main_pid: int) -> NoReturn:
    """Be the first process of a pid namespace until the last other one is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    code = 1
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            os._exit(code)
        if pid == main_pid:
            code = _code(status)
            _say({"exit": code})


if __name__ == "__main__":
    main()
