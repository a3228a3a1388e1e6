"""Scripts of every sort for a chaos run: what is sent, and how it has to end."""

from __future__ import annotations

import random
import re
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from corral.client import Client, TaskDetail
from tests.containers import SHELL

IDENTITY = ("-c", "user.name=t", "-c", "user.email=t@example.org")
# A family with a daemon in its own session and one that has forked twice.
FAMILY = (
    "setsid sleep 98001 & (setsid sh -c 'trap \"\" TERM; sleep 98002 & sleep 98003' &);"
)
# Folders nobody may look into, odd names, and a link that leads out.
ODD = (
    'mkdir -p a/b; touch a/b/c ./-rf "$(printf "x\\ny")"; ln -s /etc/passwd a/out; '
    "for d in $CORRAL_ARTIFACTS $CORRAL_CHECKPOINT; do "
    "mkdir $d/shut; touch $d/shut/f; chmod 000 $d/shut; done; chmod 000 a/b a"
)
GOES_ON = (
    "if [ -e $CORRAL_CHECKPOINT/at ]; then cat $CORRAL_CHECKPOINT/at; "
    "else echo here > $CORRAL_CHECKPOINT/at; exit 5; fi"
)
HUNGRY = r"x=$(head -c 400000000 /dev/zero | tr '\0' x); echo ${#x}"
# Builds for as long as one lets it, and leaves a daemon behind.
SLOW_BUILD = """\
import subprocess, time
subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 97001 & sleep 97002"],
                 start_new_session=True)
time.sleep(97003)
"""
SLOW_PROJECT = """\
[build-system]
requires = []
build-backend = "slow"
backend-path = ["."]
[project]
name = "slow"
version = "0"
"""
# A server that never answers, and does not mind who has gone.
HANGING_SSH = "#!/bin/sh\ntrap '' TERM HUP PIPE\nsleep 96001 &\nexec sleep 96002\n"
KILLED_TOOL = re.compile(r"was killed by signal 9")


@dataclass(frozen=True)
class Case:
    """One script, and the ends that are right for it."""

    name: str
    payload: dict[str, Any]
    ends: frozenset[str]
    says: str = ""
    prints: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    cancel_after_s: float | None = None

    def fault(self, task: TaskDetail) -> str | None:
        """What is wrong with the way it ended."""
        said = task.error.message if task.error else ""
        told = f"{self.name}: {task.status} after {task.attempt}: {said!r}"
        if task.dead_letter == "poison" or KILLED_TOOL.search(said):
            return None  # it, or git or uv under it, was killed once too often
        if task.status not in self.ends or "\n" in said:
            return told
        if task.status == "failed" and not re.search(self.says, said):
            return told
        out = (task.result or {}).get("stdout")
        if task.status == "completed" and self.prints not in (None, out):
            return f"{told}, printed {out!r}"
        return None


def commit(folder: Path, **files: str) -> Path:
    """A repository with one commit."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    for words in (("init", "-qb", "main"), ("add", "."), ("commit", "-qm", "first")):
        command = ["git", *IDENTITY, *words]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


class Stage:
    """Repositories and folders that jobs are made from, and the dice."""

    def __init__(self, home: Path, client: Client, dice: random.Random) -> None:
        self.dice = dice
        needs = [f"iniconfig\n# {n}\n" for n in range(3)]
        made = [
            commit(home / f"good{n}", requirements__txt=text, a__py="print('fine')\n")
            for n, text in enumerate(needs)
        ]
        self._good = [{"repo_url": f"file://{place}"} for place in made]
        self._plain = {"repo_url": f"file://{commit(home / 'plain', a__sh='exit 0')}"}
        self._archives = [client.upload(place) for place in made[:2]]
        none = commit(home / "none", requirements__txt="iniconfig==0.0.0.1\n")
        self._unresolvable = {"repo_url": f"file://{none}"}
        slow = commit(home / "slow", slow__py=SLOW_BUILD, pyproject__toml=SLOW_PROJECT)
        self._slow = {"repo_url": f"file://{slow}"}
        (home / "linked").mkdir()
        (home / "linked" / "out").symlink_to("/etc/passwd")
        self._stray = {"repo_url": f"file://{commit(home / 'linked')}"}

    def cases(self, count: int) -> list[Case]:
        """As many as asked for, every sort among them once there are enough."""
        makers = [self._fine, self._long, self._bad, self._hanging, self._limited]
        dealt = [makers[n % len(makers)]() for n in range(count)]
        self.dice.shuffle(dealt)
        return dealt

    def _any_place(self) -> dict[str, Any]:
        places: list[dict[str, Any]] = [
            {},
            {"environment": {"docker": {"image": SHELL}}},
            {"environment": {"git": self.dice.choice([*self._good, self._plain])}},
            {"environment": {"archive": {"digest": self.dice.choice(self._archives)}}},
        ]
        return self.dice.choice(places)

    def _shell(self, name: str, script: str, *ends: str, **more: Any) -> Case:
        place = self._any_place()
        kind = next(iter(place.get("environment", {"none": 0})))
        payload = {"command": ["sh", "-c", script], "grace_s": 0.5, **place}
        return Case(f"{name} ({kind})", payload, frozenset(ends), **more)

    def _fine(self) -> Case:
        scripts: list[tuple[str, str, str | None, dict[str, Any]]] = [
            ("fine", "echo fine", "fine\n", {}),
            ("daemons", f"{FAMILY} echo up", "up\n", {}),
            ("odd files", f"{ODD}; echo odd", "odd\n", {}),
            ("much output", "seq 30000", None, {}),
            ("artifact", "echo x > $CORRAL_ARTIFACTS/a; echo y", "y\n", {}),
            ("checkpoint", GOES_ON, "here\n", {"retries": 2}),
        ]
        name, script, prints, options = self.dice.choice(scripts)
        return self._shell(name, script, "completed", prints=prints, options=options)

    def _long(self) -> Case:
        """Ended from outside, at any moment."""
        deaf = "trap '' TERM; while :; do sleep 0.1; done"
        script = self.dice.choice((f"{FAMILY} sleep 98004", deaf))
        if self.dice.random() < 0.4:
            return self._shell("late", script, "timed_out", options={"timeout": 1})
        after_s = self.dice.uniform(0.0, 4.0)
        return self._shell("cancel", script, "cancelled", cancel_after_s=after_s)

    def _hanging(self) -> Case:
        """Ended while it is being cloned or built."""
        name, where = self.dice.choice(
            [
                ("clone", {"repo_url": "ssh://git@nowhere.invalid/x.git"}),
                ("build", self._slow),
            ]
        )
        payload = {"command": "true", "environment": {"git": where}}
        made = Case(f"late {name}", payload, frozenset({"timed_out"}))
        if self.dice.random() < 0.5:
            return replace(made, options={"timeout": self.dice.uniform(0.5, 3.0)})
        return replace(
            made,
            name=f"cancel {name}",
            ends=frozenset({"cancelled"}),
            cancel_after_s=self.dice.uniform(0.2, 3.0),
        )

    def _limited(self) -> Case:
        scripts: list[tuple[str, str, dict[str, int], str]] = [
            ("exit code", "echo no >&2; exit 3", {}, "exit code 3: no"),
            ("file size", "head -c 4000000 /dev/zero > f", {"file_size_mb": 1}, "code"),
            ("memory", HUNGRY, {"memory_mb": 64}, "memory"),
        ]
        name, script, limits, says = self.dice.choice(scripts)
        made = self._shell(name, script, "failed", says=says)
        return replace(made, payload={**made.payload, "limits": limits})

    def _bad(self) -> Case:
        plain, docker = self._plain, {"docker": {"image": SHELL}}
        nowhere = {"repo_url": "file:///nowhere/at/all"}
        absent: list[tuple[str, dict[str, Any], str, str]] = [
            ("repository", {"git": nowhere}, "true", "nowhere"),
            ("branch", {"git": {**plain, "branch": "no"}}, "true", "no branch"),
            ("commit", {"git": {**plain, "commit": "0" * 40}}, "true", "0000"),
            ("folder", {"git": {**plain, "working_dir": "no"}}, "true", "not a folder"),
            ("image", {"docker": {"image": "localhost/no:1"}}, "true", "localhost/no"),
            ("command", {"git": plain}, "not-a-command", "not-a-command"),
            ("command inside", docker, "not-a-command", "not-a-command"),
            ("package", {"git": self._unresolvable}, "true", "uv pip install failed"),
            ("safe link", {"git": self._stray}, "true", "leads out"),
        ]
        name, where, command, says = self.dice.choice(absent)
        payload = {"command": command, "environment": where}
        return Case(f"no {name}", payload, frozenset({"failed"}), says=says)
