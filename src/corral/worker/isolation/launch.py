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
import sys
from typing import Any, NoReturn

PLAN_FD, WORD_FD = 3, 4
NOT_FOUND, NOT_RUNNABLE = 127, 126
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_NS_GET_USERNS = 0xB701


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

    Bubblewrap may have made its user namespace in another one, to which all the
    others belong: that one is joined first and the job's own last.
    """
    kinds = ("ipc", "uts", "net", "cgroup", "pid", "mnt")
    ours = {os.stat(f"/proc/self/ns/{kind}").st_ino for kind in (*kinds, "user")}
    fds = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in kinds]
    outer = fcntl.ioctl(fds[-1], _NS_GET_USERNS)
    inner = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    for fd in (outer, *fds, inner):
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
