"""Sources from Git: which commit is meant, and its files, without running any of them.

Every git gets an environment of its own: no configuration of this machine, no hooks,
no prompts, no protocol but those allowed, and a token for one host at most.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from corral.core.access.address import (
    Address,
    faces,
    is_allowed,
    is_everybodys,
    reason_against,
)
from corral.core.tasks.environment import GitEnvironment, check_repo_url, host_of
from corral.errors import EnvironmentFailed, InvalidField
from corral.worker.environments import folder, tool
from corral.worker.environments.cache import Cache, CacheDraft, CacheEntry, key_of
from corral.worker.environments.policy import PUBLIC, EnvironmentPolicy

_WHOLE_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# A folder at the top, a file in every submodule.
_OWN = ".git"
_CONFIG = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "credential.helper": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "init.defaultBranch": "main",
    "advice.detachedHead": "false",
    # Where one leads is nothing that was judged.
    "http.followRedirects": "false",
}
# What is watched for the size of what it writes.
_FILLING = ("fetch", "checkout", "submodule")
_SSH_OPTIONS = (
    "BatchMode=yes",
    "IdentitiesOnly=yes",
    "IdentityAgent=none",
    "StrictHostKeyChecking=yes",
    "ProxyCommand=none",
)
_REDIRECTED = re.compile(r"error: 30[1278]\b")
_LFS = {
    "filter.lfs.process": "git-lfs filter-process",
    "filter.lfs.smudge": "git-lfs smudge -- %f",
    "filter.lfs.clean": "git-lfs clean -- %f",
    "filter.lfs.required": "true",
}
# The helper is run by git itself and reads what only that git was given.
_HELPER = (
    '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n"'
    ' "$CORRAL_GIT_USER" "$CORRAL_GIT_TOKEN"; }; f'
)
_USER = "x-access-token"


def git_variables(
    policy: EnvironmentPolicy, config: Iterable[tuple[str, str]]
) -> dict[str, str]:
    """What makes a git, and every git it starts, keep to itself."""
    pairs = [*_CONFIG.items(), *config]
    settings = {"GIT_CONFIG_COUNT": str(len(pairs))}
    for number, (name, value) in enumerate(pairs):
        settings[f"GIT_CONFIG_KEY_{number}"] = name
        settings[f"GIT_CONFIG_VALUE_{number}"] = value
    return {
        **tool.environment(),
        **settings,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_TEMPLATE_DIR": "",
        "GIT_ALLOW_PROTOCOL": _protocols(policy),
        "GIT_SSH_COMMAND": _ssh_command(policy.ssh_key),
        "GIT_LFS_SKIP_SMUDGE": "1",
    }


def _protocols(policy: EnvironmentPolicy) -> str:
    is_open = {"https": True, "ssh": bool(policy.ssh_key), "file": policy.allow_file}
    return ":".join(name for name, is_allowed in is_open.items() if is_allowed)


def _ssh_command(key: str) -> str:
    """One key, of no agent, and hosts that are known already; no configuration.

    OpenSSH takes the account's own home, whatever $HOME says.
    """
    words = ("ssh", "-F", "none", *(f"-o{option}" for option in _SSH_OPTIONS))
    return shlex.join((*words, "-i", key or os.devnull))


def pins_of(url: str, policy: EnvironmentPolicy) -> list[str]:
    """Judge the host of a URL; where a git must find it, as `http.curloptResolve`.

    Raises:
        EnvironmentFailed: this node must not call it.
    """
    host, port = host_of(url)
    if not host:
        return []
    if not url.startswith("https://") and not policy.ssh_key:
        raise EnvironmentFailed(
            f"{url}: ssh needs a key of this node (CORRAL_GIT_SSH_KEY); a repository "
            "that everybody may read has an https URL"
        )
    addresses = _resolve(host, port)
    for face in (face for address in addresses for face in faces(address)):
        if why := reason_against(face):
            raise EnvironmentFailed(f"{url}: {host} is {face}, {why}")
    if not is_allowed(host, addresses, port, policy.git_allow):
        if PUBLIC not in policy.git_allow:
            raise EnvironmentFailed(f"{url}: {host} is not in CORRAL_GIT_ALLOW")
        if not all(map(is_everybodys, addresses)):
            raise EnvironmentFailed(
                f"{url}: {host} is inside a private network, and not in "
                "CORRAL_GIT_ALLOW of this node"
            )
    found = ",".join(f"[{a}]" if a.version == 6 else str(a) for a in addresses)
    return [f"{host}:{port}:{found}"] if found and not _literal(host) else []


def _literal(host: str) -> list[Address]:
    try:
        return [ip_address(host)]
    except ValueError:
        return []


def _resolve(host: str, port: int) -> list[Address]:
    if told := _literal(host):
        return told
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        # Behind a proxy only that may know names, and it says who is called.
        if tool.has_proxy():
            return []
        raise EnvironmentFailed(f"{host} cannot be resolved: {error}") from error
    return [ip_address(str(row[4][0]).partition("%")[0]) for row in rows]


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository elsewhere, and our copy of it in the cache."""

    wanted: GitEnvironment
    cache: Cache
    policy: EnvironmentPolicy

    def resolve(self) -> str:
        """The whole name of the commit that is meant, as of now.

        A commit counts before a branch: whoever names both has pinned it.

        Raises:
            EnvironmentFailed: there is none, or nobody could be asked.
        """
        self._check()
        commit = (self.wanted.commit or "").lower()
        if _WHOLE_COMMIT.fullmatch(commit):
            return commit
        if commit:
            return self._lengthen(commit)
        return self._head()

    def tree(self, commit: str) -> CacheEntry:
        """The files of a commit: read-only, and without Git's own.

        Raises:
            EnvironmentFailed: they cannot be had, or a link among them leads out.
        """
        wanted = self.wanted
        parts = (wanted.repo_url, commit, str(wanted.submodules), str(wanted.lfs))
        return self.cache.hold(
            "tree",
            key_of("git", *parts),
            lambda draft: self._build(draft, commit),
            timeout_s=self.policy.patience_s,
        )

    def _check(self) -> None:
        url = self.wanted.repo_url
        try:
            check_repo_url(url)
        except InvalidField as error:
            raise EnvironmentFailed(error.message) from error
        if (url.startswith(("/", "file:"))) and not self.policy.allow_file:
            raise EnvironmentFailed(
                f"{url}: repositories in local folders are not allowed on this node"
                " (CORRAL_GIT_ALLOW_FILE)"
            )
        if not self.wanted.lfs:
            return
        if shutil.which("git-lfs") is None:
            raise EnvironmentFailed("git-lfs is not installed on this node")
        host, port = host_of(url)
        if host and not is_allowed(host, _literal(host), port, self.policy.git_allow):
            # Its server names the address of every file, and no git judges those.
            raise EnvironmentFailed(
                f"{url}: large files (LFS) come only from hosts that are named in "
                f"CORRAL_GIT_ALLOW, as in public,{host}"
            )

    def _head(self) -> str:
        """What the branch or tag, else the default branch, points to."""
        name = self.wanted.branch
        refs = [f"refs/heads/{name}", f"refs/tags/{name}^{{}}", f"refs/tags/{name}"]
        wanted = refs if name else ["HEAD"]
        url = self.wanted.repo_url
        said = self._git("ls-remote", "--quiet", "--", url, *wanted, reach=url)
        found = {
            ref: commit
            for commit, _, ref in (line.partition("\t") for line in said.splitlines())
        }
        for ref in wanted:
            if ref in found:
                return found[ref]
        what = f"no branch or tag {name!r}" if name else "no commits"
        raise EnvironmentFailed(f"{self.wanted.repo_url} has {what}")

    def _lengthen(self, commit: str) -> str:
        """Only a whole history knows what a shortened name stands for."""
        with self._copy() as copy:
            found = self._look_up(copy, commit)
            if found is None:
                self._fetch_all(copy)
                found = self._look_up(copy, commit)
        if found is None:
            raise EnvironmentFailed(f"{self.wanted.repo_url} has no commit {commit}")
        return found

    def _copy(self) -> AbstractContextManager[CacheDraft]:
        key = key_of(self.wanted.repo_url)
        return self.cache.change("git", key, timeout_s=self.policy.patience_s)

    def _build(self, draft: CacheDraft, commit: str) -> None:
        with self._copy() as copy:
            if self._look_up(copy, commit) is None:
                self._fetch(copy, commit)
            self._check_out(copy, commit, draft)
        folder.remove(draft.path / _OWN)
        if self.wanted.submodules:
            for entry in list(folder.walk(draft.path)):
                if entry.name == _OWN:
                    os.unlink(entry.path)
        refuse_stray_links(draft.path)
        folder.seal(draft.path)

    def _look_up(self, copy: CacheDraft, commit: str) -> str | None:
        if not copy.path.exists():
            return None
        ask = ("rev-parse", "--quiet", "--verify", "--end-of-options")
        try:
            said = self._git(*ask, f"{commit}^{{commit}}", at=copy)
        except EnvironmentFailed as error:
            if error.details.get("timed_out"):
                raise
            return None
        return said.strip()

    def _fetch(self, copy: CacheDraft, commit: str) -> None:
        """This commit alone where the server hands it out, else everything."""
        self._open(copy)
        try:
            self._pull(copy, "--depth=1", refs=(f"+{commit}:refs/corral/{commit}",))
        except EnvironmentFailed as error:
            if error.details.get("timed_out"):
                raise
            self._fetch_all(copy)
        if self._look_up(copy, commit) is None:
            raise EnvironmentFailed(f"{self.wanted.repo_url} has no commit {commit}")

    def _fetch_all(self, copy: CacheDraft) -> None:
        self._open(copy)
        is_shallow = self._git("rev-parse", "--is-shallow-repository", at=copy)
        depth = ("--unshallow",) if is_shallow.strip() == "true" else ()
        refs = ("+refs/heads/*:refs/corral/heads/*", "+refs/tags/*:refs/corral/tags/*")
        self._pull(copy, *depth, refs=refs)

    def _open(self, copy: CacheDraft) -> None:
        if not copy.path.exists():
            self._git("init", "--quiet", "--bare", str(copy.path), on=copy)
        # Left by a git that was killed: nobody else is at work here while we are.
        half = (copy.path / "objects").rglob("tmp_*")
        for stale in (*copy.path.rglob("*.lock"), *half):
            if stale.is_file():
                stale.unlink()

    def _pull(self, copy: CacheDraft, *options: str, refs: tuple[str, ...]) -> None:
        quiet = ("--quiet", "--no-tags", "--no-write-fetch-head", "--force")
        url = self.wanted.repo_url
        words = ("fetch", *quiet, *options, "--", url, *refs)
        try:
            self._git(*words, at=copy, reach=url)
        except EnvironmentFailed as error:
            if error.details.get("too_large"):
                folder.remove(copy.path)
            raise
        self.cache.count("clones" if copy.is_new else "fetches")

    def _check_out(self, copy: CacheDraft, commit: str, draft: CacheDraft) -> None:
        place = draft.path
        self._git("init", "--quiet", str(place), on=draft)
        git = place / _OWN
        alternates = git / "objects" / "info" / "alternates"
        alternates.parent.mkdir(parents=True, exist_ok=True)
        alternates.write_text(f"{copy.path / 'objects'}\n", encoding="utf-8")
        if (copy.path / "shallow").exists():
            shutil.copyfile(copy.path / "shallow", git / "shallow")
        # Submodules and LFS find their own places relative to it.
        origin = ("config", "remote.origin.url", self.wanted.repo_url)
        self._git(*origin, within=place, on=draft)
        # Only large files are fetched by it.
        url = self.wanted.repo_url if self.wanted.lfs else ""
        words = ("checkout", "--quiet", "--detach", commit)
        self._git(*words, within=place, on=draft, reach=url)
        if self.wanted.submodules:
            self._add_submodules(draft)

    def _add_submodules(self, draft: CacheDraft) -> None:
        """One at a time: their URLs come with the repository, and are judged first."""
        end = time.monotonic() + self.policy.git_timeout_s
        todo = [draft.path]
        while todo:
            here = todo.pop()
            if not (here / ".gitmodules").is_file():
                continue
            self._git("submodule", "--quiet", "init", within=here, on=draft)
            for name, url in self._submodules(here, draft):
                of_name = ("--file", ".gitmodules", "--get", f"submodule.{name}.path")
                path = self._git("config", *of_name, within=here, on=draft).rstrip("\n")
                self._update(here, path, url, draft)
                todo.append(here / path)
                if time.monotonic() > end:
                    raise EnvironmentFailed(
                        f"the submodules of {self.wanted.repo_url} took longer than "
                        f"{self.policy.git_timeout_s:g} s"
                    )

    def _submodules(self, here: Path, draft: CacheDraft) -> list[tuple[str, str]]:
        """Their names and URLs, as a folder's own configuration has them by now."""
        words = ("--null", "--local", "--get-regexp", r"^submodule\..*\.url$")
        said = self._git("config", *words, within=here, on=draft)
        pairs = (row.partition("\n") for row in said.split("\0") if row)
        return [
            (key.removeprefix("submodule.").removesuffix(".url"), url)
            for key, _, url in pairs
        ]

    def _update(self, here: Path, path: str, url: str, draft: CacheDraft) -> None:
        # Git itself refuses other protocols.
        if "://" not in url or url.startswith(("https:", "ssh:", "file:")):
            try:
                check_repo_url(url)
            except InvalidField as error:
                raise EnvironmentFailed(f"submodule {path}: {error.message}") from error
        words = ("submodule", "--quiet", "update", "--depth=1", "--", path)
        self._git(*words, within=here, on=draft, reach=url)

    def _git(
        self,
        *words: str,
        at: CacheDraft | None = None,
        on: CacheDraft | None = None,
        within: Path | None = None,
        reach: str = "",
    ) -> str:
        """Run git; `reach` is the URL of whom it may call, if it calls anybody."""
        program = shutil.which("git")
        if program is None:
            raise EnvironmentFailed("git is not installed on this node")
        if at is not None:
            words = (f"--git-dir={at.path}", *words)
        on = at or on
        with self.cache.scratch() as home:
            variables, secret = self._variables(home, reach)
            try:
                return tool.run(
                    [program, *words],
                    variables=variables,
                    folder=within or home,
                    timeout_s=self.policy.git_timeout_s,
                    what=f"git {_verb(words)} of {self.wanted.repo_url}",
                    mark=str(on.path if on else home),
                    hidden=(secret,) if secret else (),
                    limit=self._limit(on) if _verb(words) in _FILLING else None,
                )
            except EnvironmentFailed as error:
                if _REDIRECTED.search(error.message):
                    hint = "redirects are not followed: name the URL it leads to"
                    text = f"{error.message} ({hint}, often the same with .git)"
                    raise EnvironmentFailed(text, **error.details) from error
                raise

    def _limit(self, on: CacheDraft | None) -> tool.FolderLimit | None:
        if on is None:
            return None
        name = "CORRAL_GIT_LIMIT_GB"
        return tool.FolderLimit(on.path, self.policy.git_limit_bytes, name)

    def _variables(self, home: Path, reach: str) -> tuple[dict[str, str], str]:
        host = urlsplit(self.wanted.repo_url).netloc.rpartition("@")[2]
        is_https = self.wanted.repo_url.startswith("https://")
        token = self.policy.git_tokens.get(host, "") if is_https else ""
        config = list(_LFS.items()) if self.wanted.lfs else []
        if self.wanted.lfs and reach.startswith("https://"):
            # Before what a file of the repository says.
            own = f"{reach.removesuffix('/').removesuffix('.git')}.git/info/lfs"
            config.append(("lfs.url", own))
        if token:
            config.append((f"credential.https://{host}.helper", _HELPER))
        pins = pins_of(reach, self.policy) if reach else []
        config += [("http.curloptResolve", pin) for pin in pins]
        variables = {**git_variables(self.policy, config), "HOME": str(home)}
        if self.wanted.lfs:
            del variables["GIT_LFS_SKIP_SMUDGE"]
        if token:
            user, colon, secret = token.partition(":")
            user, token = (user, secret) if colon else (_USER, token)
            variables |= {"CORRAL_GIT_USER": user, "CORRAL_GIT_TOKEN": token}
        return variables, token


def _verb(words: tuple[str, ...]) -> str:
    return next(word for word in words if not word.startswith("-"))


def refuse_stray_links(root: Path) -> None:
    """Raises EnvironmentFailed when a link leads out of what was fetched."""
    stray = folder.find_stray_link(root)
    if stray is not None:
        name, target = stray
        raise EnvironmentFailed(f"{name!r} is a link that leads out, to {target!r}")
