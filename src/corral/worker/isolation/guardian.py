"""Stays beside one job and ends all of it when told to, or when its caller is gone.

Run by path with `python -I -S -B`, so nothing but the standard library may be imported
here. It takes orders as JSON lines on stdin, answers with JSON lines on stdout, and
leaves only when no process and no control group of the job is left. Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import re
import resource
import select
import signal
import struct
import sys
import time
from typing import Any, NoReturn

PLAN_FD, WORD_FD = 3, 4
KILL_TICK_S, WATCH_TICK_S, GIVE_UP_S = 0.02, 0.25, 30.0
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_NEW_USER, _NEW_NET = 0x10000000, 0x40000000
_NET_ADMIN, _CAPABILITY_3 = 12, 0x20080522
_PR_CAP_AMBIENT, _RAISE = 47, 2


class Guardian:
    """One job, from its start to the end of its last process."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.main = 0
        self.code: int | None = None
        self.is_ready = False
        self.is_killing = False
        self.is_lost = False
        self.was_over_memory = False
        self.peak_mb = 0.0
        self.deadline: float | None = None
        self.rest = b""
        self.carrier = 0
        self.word_in, self.word_out = os.pipe()
        self.wake_in, wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self.kill())
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def run(self) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            self.make_groups()
            self.spawn()
            self.serve()
        except OSError as error:
            why = error.strerror or str(error)
            self.tell({"failed": f"{error.filename or 'guardian'}: {why}"})
        left = self.clear()
        self.tell({"end": {"code": self.code, "left": left, **self.facts()}})
        self.remove_groups()

    def tell(self, word: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the caller is gone: nobody to tell
            os.write(1, json.dumps(word).encode() + b"\n")

    def make_groups(self) -> None:
        for group in self.plan["groups"]:
            if group["make"]:
                os.mkdir(group["folder"])
            for name, value in group["set"]:
                _write(os.path.join(group["folder"], name), value)
            for name, value in group["try"]:
                with contextlib.suppress(OSError):
                    _write(os.path.join(group["folder"], name), value)

    def spawn(self) -> None:
        launch = dict(self.plan["launch"])
        launch["parent"] = 0 if self.plan["wrappers"] else os.getpid()
        files = {
            PLAN_FD: _memory_file(json.dumps(launch).encode()),
            WORD_FD: self.word_out,
        }
        if options := self.plan["options"]:
            files[self.plan["option_fd"]] = _memory_file("\0".join(options).encode())
        guardian = os.getpid()
        made, go = os.pipe(), os.pipe()
        self.main = os.fork()
        if not self.main:
            if self.plan["network"]:
                self.leave_network(made[1], go)
            self.become(guardian, files)
        for fd in (made[1], go[0]):
            os.close(fd)
        if self.plan["network"]:
            self.connect(made[0])
            os.write(go[1], b"g")
        for fd in (made[0], go[1]):
            os.close(fd)
        for fd in (*files.values(), *self.ends()):
            os.close(fd)

    def leave_network(self, made: int, go: tuple[int, int]) -> None:
        """In the job's first process: go where there is no network yet, and wait."""
        os.close(go[1])
        flags = _NEW_NET | (0 if os.geteuid() == 0 else _NEW_USER)
        _check(ctypes.CDLL(None, use_errno=True).unshare(flags), "unshare")
        os.write(made, b"m")
        # Nobody says so where the guardian failed or died.
        if os.read(go[0], 1) != b"g":
            os._exit(1)

    def connect(self, made: int) -> None:
        """Give that place a filter first, and then the world."""
        told = self.plan["network"]
        if os.read(made, 1) != b"m":
            raise OSError("the job cannot have a network of its own")
        if os.geteuid() != 0:
            _write(f"/proc/{self.main}/setgroups", "deny")
            _write(f"/proc/{self.main}/uid_map", f"{os.getuid()} {os.getuid()} 1")
            _write(f"/proc/{self.main}/gid_map", f"{os.getgid()} {os.getgid()} 1")
        rules = _memory_file(told["rules"].encode())
        inside = os.fork()
        if not inside:
            self.run_inside(told["filter"], rules)
        os.close(rules)
        if os.waitpid(inside, 0)[1]:
            raise OSError("the filter of the job's network cannot be set")
        ready, said = os.pipe()
        stay, gone = os.pipe()
        self.carrier = os.fork()
        if not self.carrier:
            os.close(gone)
            self.carry(said, stay)
        os.close(said)
        os.close(stay)
        # Open for as long as this process lives: the carrier ends with it.
        self.gone = gone
        is_up = os.read(ready, 1)
        os.close(ready)
        if is_up != b"1":
            raise OSError("nothing carries the packets of the job's network")

    def run_inside(self, argv: list[str], stdin: int) -> NoReturn:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            kinds = ("net",) if os.geteuid() == 0 else ("user", "net")
            for kind in kinds:
                fd = os.open(f"/proc/{self.main}/ns/{kind}", os.O_RDONLY)
                _check(libc.setns(fd, 0), "setns")
            if os.geteuid() != 0:
                _keep_right(libc, _NET_ADMIN)
            os.dup2(stdin, 0)
            os.dup2(2, 1)
            os.execve(argv[0], argv, self.plan["env"])
        except OSError as error:
            os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(127)

    def carry(self, ready: int, stay: int) -> NoReturn:
        argv = [*self.plan["network"]["carry"], f"--ready-fd={ready}"]
        argv += [f"--exit-fd={stay}"]
        if os.geteuid() != 0:
            argv += [f"--userns-path=/proc/{self.main}/ns/user"]
        argv += [str(self.main), "tap0"]
        try:
            os.setsid()
            for fd in (ready, stay):
                os.set_inheritable(fd, True)
            null = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            os.execve(argv[0], argv, self.plan["env"])
        except OSError:
            os._exit(127)

    def ends(self) -> tuple[int, int, int]:
        """The job's own stdin, stdout and stderr, as they are numbered here."""
        return self.plan["in"], self.plan["out"], self.plan["err"]

    def become(self, guardian: int, files: dict[int, int]) -> NoReturn:
        try:
            os.setsid()
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != guardian:
                os._exit(1)
            for group in self.plan["groups"]:
                _write(os.path.join(group["folder"], "cgroup.procs"), "0")
            if self.plan["processors"]:
                os.sched_setaffinity(0, self.plan["processors"])
            # Where memory runs out, the job goes before us and our caller.
            _write("/proc/self/oom_score_adj", "500")
            places = {**dict(enumerate(self.ends())), **files}
            # First out of the way: a number may be another's place.
            moved = {to: _above(fd) for to, fd in places.items()}
            for to, fd in moved.items():
                os.dup2(fd, to)
            last = max(*moved.values(), *places.values())
            os.closerange(max(places) + 1, last + 1)
            os.execve(self.plan["argv"][0], self.plan["argv"], self.plan["env"])
        except OSError as error:
            os.write(2, f"{self.plan['argv'][0]}: {error.strerror}\n".encode())
        os._exit(127)

    def serve(self) -> None:
        poller = select.poll()
        for fd in (0, self.wake_in, self.word_in):
            poller.register(fd, select.POLLIN)
        with contextlib.suppress(OSError, AttributeError):
            # The end of the pipe says the same, unless somebody else holds it open.
            poller.register(os.pidfd_open(self.plan["parent"]), select.POLLIN)
        while not self.is_killing:
            for fd, _ in poller.poll(self.patience_ms()):
                self.take(fd, poller)
            self.reap()
            self.watch()
            if self.deadline is not None and time.monotonic() >= self.deadline:
                self.kill()

    def patience_ms(self) -> int | None:
        waits = [WATCH_TICK_S] if self.plan["watch_mb"] else []
        if self.deadline is not None:
            # Others than the main process end without a word to us.
            waits += [max(0.0, self.deadline - time.monotonic()), 5 * KILL_TICK_S]
        return int(min(waits) * 1000) + 1 if waits else None

    def take(self, fd: int, poller: select.poll) -> None:
        if fd == self.wake_in:
            os.read(fd, 4096)
        elif fd == self.word_in:
            self.hear(os.read(fd, 65536), poller)
        elif fd == 0 and (data := os.read(0, 65536)):
            *lines, self.rest = (self.rest + data).split(b"\n")
            for line in lines:
                self.obey(json.loads(line))
        else:
            self.kill()

    def hear(self, data: bytes, poller: select.poll) -> None:
        """Take what the launcher says; it writes whole lines."""
        if not data:
            poller.unregister(self.word_in)
        for line in data.splitlines():
            word = json.loads(line)
            if "exit" in word:
                self.ended(word["exit"])
            elif "failed" in word:
                self.tell(word)
            else:
                self.is_ready = True
                self.tell({"ready": self.main})

    def obey(self, order: dict[str, Any]) -> None:
        if order["do"] == "signal":
            self.signal_all(order["number"])
        elif order["do"] == "stop":
            self.signal_all(signal.SIGTERM)
            self.signal_all(signal.SIGCONT)  # who is stopped hears nothing else
            self.deadline = time.monotonic() + order["grace_s"]

    def reap(self) -> None:
        for pid, status in iter(_collect, None):
            if pid == self.main:
                code = os.waitstatus_to_exitcode(status)
                # From within a sandbox nobody can kill what wraps it.
                is_wrapper = bool(self.plan["options"])
                self.is_lost = is_wrapper and code < 0 and self.code is None
                self.ended(128 - code if code < 0 else code)
        is_over = self.code is not None and self.deadline is not None
        if is_over and not self.members():
            self.kill()

    def ended(self, code: int) -> None:
        if self.code is None:
            self.code = code
        # A stop leaves the others the rest of their grace; else they end with it.
        if self.deadline is None:
            self.kill()

    def watch(self) -> None:
        """Where no control group limits memory, the guardian does."""
        limit = self.plan["watch_mb"]
        if not limit:
            return
        family = self.members()
        used = sum(_resident_mb(pid) for pid in family)
        if used > limit:  # shared pages were counted once for each: look closer
            used = sum(_share_mb(pid) for pid in family)
        self.peak_mb = max(self.peak_mb, used)
        if used > limit:
            self.was_over_memory = True
            self.kill()

    def kill(self) -> None:
        self.is_killing = True

    def signal_all(self, number: int) -> None:
        _signal(self.members(), number)

    def members(self) -> list[int]:
        """The living processes of the job, without what only wraps it."""
        children = _children()
        wraps = [self.main] if self.plan["wrappers"] else []
        if self.plan["wrappers"] > 1:
            wraps += children.get(self.main, [])
        others = (*wraps, self.carrier)
        return [pid for pid in _below(os.getpid(), children) if pid not in others]

    def clear(self) -> list[int]:
        """Kill until nobody is left; whoever cannot be killed."""
        give_up_at = time.monotonic() + GIVE_UP_S
        while True:
            for pid, status in iter(_collect, None):
                if pid == self.main and self.code is None:
                    code = os.waitstatus_to_exitcode(status)
                    self.code = 128 - code if code < 0 else code
            left = [*_below(os.getpid(), _children()), *self.grouped()]
            if not left or time.monotonic() > give_up_at:
                return left
            self.kill_groups()
            # Held first, so that none of them forks while the others are killed.
            _signal(left, signal.SIGSTOP)
            _signal(left, signal.SIGKILL)
            select.select([], [], [], KILL_TICK_S)

    def own_groups(self) -> list[str]:
        return [group["folder"] for group in self.plan["groups"] if group["make"]]

    def grouped(self) -> list[int]:
        found: set[int] = set()
        for folder in self.own_groups():
            text = _read(os.path.join(folder, "cgroup.procs"))
            found |= {int(pid) for pid in text.split() if pid != "0"}
        return sorted(found - {os.getpid()})

    def kill_groups(self) -> None:
        for folder in self.own_groups():
            with contextlib.suppress(OSError):
                _write(os.path.join(folder, "cgroup.kill"), "1")

    def remove_groups(self) -> None:
        give_up_at = time.monotonic() + 2.0
        for folder in self.own_groups():
            while os.path.isdir(folder) and time.monotonic() < give_up_at:
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
                    break
                select.select([], [], [], KILL_TICK_S)

    def facts(self) -> dict[str, Any]:
        peak, oom = self.plan["peak_file"], self.plan["oom_file"]
        kills = re.search(r"^oom_kill (\d+)", _read(oom), re.MULTILINE)
        text = _read(peak).strip()
        if text.isdigit():
            self.peak_mb = int(text) / 2**20
        elif not self.peak_mb:
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.peak_mb = used.ru_maxrss / 1024
        was_killed = kills is not None and int(kills[1]) > 0
        return {
            "oom": was_killed or self.was_over_memory,
            "lost": self.is_lost,
            "peak_mb": self.peak_mb,
        }


def _check(result: int, name: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


def _keep_right(libc: ctypes.CDLL, number: int) -> None:
    """Have a right, of this user namespace, still after `exec`."""
    header = struct.pack("=II", _CAPABILITY_3, 0)
    only = struct.pack("=6I", *(1 << number,) * 3, 0, 0, 0)
    _check(libc.capset(header, only), "capset")
    _check(libc.prctl(_PR_CAP_AMBIENT, _RAISE, number, 0, 0), "prctl")


def _collect() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (text := _read(f"/proc/{name}/stat")):
            # The name before the last bracket may contain anything.
            parent = int(text.rpartition(")")[2].split()[1])
            found.setdefault(parent, []).append(int(name))
    return found


def _below(root: int, children: dict[int, list[int]]) -> list[int]:
    found: list[int] = []
    todo = [root]
    while todo:
        kin = children.get(todo.pop(), [])
        found += kin
        todo += kin
    return found


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def _resident_mb(pid: int) -> float:
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20 if fields else 0.0


def _share_mb(pid: int) -> float:
    share = re.search(r"^Pss:\s+(\d+)", _read(f"/proc/{pid}/smaps_rollup"), re.M)
    return int(share[1]) / 1024 if share else _resident_mb(pid)


def _memory_file(data: bytes) -> int:
    fd = os.memfd_create("plan")
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _above(fd: int) -> int:
    """A copy of `fd` under a number that is nobody's place."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD, 16)


def _read(path: str) -> str:
    if not path:
        return ""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main() -> None:
    data = b""
    while b"\n" not in data:
        if not (piece := os.read(0, 65536)):
            sys.exit(1)
        data += piece
    # The caller says nothing more before it has heard from us.
    Guardian(json.loads(data)).run()


if __name__ == "__main__":
    main()
