"""The folder that follows a task across its attempts, on whichever node they run."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from corral.core.tree import TREE_FILES, Tree, TreeFile, TreeLink, fault_of
from corral.errors import (
    BadRequest,
    Conflict,
    CorralError,
    CorruptObject,
    EnvironmentFailed,
    InvalidField,
    NotFound,
    TooLarge,
)
from corral.files.read_folder import Changed, TreeReader
from corral.files.tree import load_tree, write_file, write_tree
from corral.files.walk import all_files, link_target
from corral.worker.environments import folder as folders
from corral.worker.script.files import CHECKPOINT, TaskFiles

_TRIES = 3


class Checkpoint:
    """`say` gets a line for the task's log when something could not be saved."""

    def __init__(
        self,
        files: TaskFiles,
        folder: Path,
        period_s: float,
        limit_bytes: int,
        say: Callable[[str], object],
    ) -> None:
        self._files = files
        self._folder = folder
        self._reader = TreeReader(folder)
        self._period_s = period_s
        self._limit = limit_bytes
        self._say = say
        self._saved = Tree()
        self._is_fenced = False
        self._is_failing = False

    def restore(self) -> None:
        """Put back what the last attempt saved.

        Raises:
            CorralError: there is something, and it cannot be had now. To start
                without it would throw away what was reached.
        """
        if self._files.attempt == 1:
            return
        digest = self._files.checkpoint()
        if digest is None:
            return
        get = self._files.get
        try:
            tree = load_tree(digest, get, self._limit)
            write_tree(
                tree, self._folder, lambda file, path: write_file(file, path, get)
            )
        except TooLarge as error:
            text = f"the checkpoint is too large for this node: {error.message}"
            raise EnvironmentFailed(f"{text} (CORRAL_ARTIFACT_LIMIT_GB)") from error
        except (BadRequest, NotFound, CorruptObject) as error:
            folders.remove(self._folder)
            self._folder.mkdir()
            self._say(f"the checkpoint is damaged, starting anew: {error.message}")
        except OSError as error:
            why = error.strerror or str(error)
            raise EnvironmentFailed(f"cannot write the checkpoint: {why}") from error
        else:
            self._saved = tree

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Save every now and then while the script runs."""
        over = threading.Event()
        saver = threading.Thread(target=self._keep, args=(over,), daemon=True)
        saver.start()
        try:
            yield
        finally:
            over.set()
            saver.join()

    def _keep(self, over: threading.Event) -> None:
        while not over.wait(self._period_s):
            why = self.save()
            if why and not self._is_failing:
                self._say(why)
            self._is_failing = bool(why)

    def save(self) -> str | None:
        """Send what changed; what is wrong if it could not be saved."""
        try:
            for left in reversed(range(_TRIES)):
                with contextlib.suppress(Changed) if left else contextlib.nullcontext():
                    self._save()
                    return None
        except OSError as error:
            return f"the checkpoint was not saved: {error.strerror or error}"
        except CorralError as error:
            self._is_fenced |= error.code == Conflict.code
            return f"the checkpoint was not saved: {error.message}"
        return None

    def _save(self) -> None:
        if self._is_fenced:
            return
        tree = self._read()
        if tree != self._saved:
            self._files.save(CHECKPOINT, tree, self._reader)
            self._saved = tree

    def _read(self) -> Tree:
        files: list[TreeFile] = []
        links: list[TreeLink] = []
        size = 0
        for name in all_files(self._folder, lambda name: None):
            # A file may go, or become something else, while the script runs.
            with contextlib.suppress(FileNotFoundError):
                made = self._entry(name)
                if isinstance(made, TreeFile):
                    files.append(made)
                    size += made.size
                elif made is not None:
                    links.append(made)
            if size > self._limit or len(files) + len(links) > TREE_FILES:
                raise TooLarge(
                    f"it has more than {self._limit} bytes (CORRAL_ARTIFACT_LIMIT_GB) "
                    f"or {TREE_FILES} files"
                )
        return Tree(tuple(files), tuple(links))

    def _entry(self, name: str) -> TreeFile | TreeLink | None:
        if fault_of(name):
            return None
        path = self._folder / name
        if not path.is_symlink():
            is_plain = path.is_file()
            return self._reader.file(name) if is_plain else None
        try:
            return TreeLink(name, link_target(self._folder, name))
        except InvalidField:
            return None
        except OSError as error:
            raise FileNotFoundError(error.errno, os.strerror(error.errno or 0)) from (
                error
            )
