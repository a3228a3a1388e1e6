"""Functions as tasks: `@corral.task`, `f.submit(x)`, `f.map(xs)`.

The code travels as an archive of its project, arguments and results as JSON; nothing
is pickled. Importing this loads no HTTP: workers do so too.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sized
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, overload

from corral.client.functions import source as sources
from corral.client.functions.handle import Handle, LazyClient
from corral.client.progress import bar
from corral.core.tasks.job_type import check_name
from corral.errors import InvalidField
from corral.wire.tasks import TaskOptions

if TYPE_CHECKING:
    from corral.client.client import Client
    from corral.client.functions.map import Arguments, FunctionCall

JOB_TYPE = "function"
_FOR_ONE = ("task_id", "idempotency_key")

P = ParamSpec("P")
R = TypeVar("R")


_shared = LazyClient()


class Function(Generic[P, R]):
    """A function that can also run on the cluster; called, it runs right here."""

    __wrapped__: Callable[P, R]
    __name__: str

    def __init__(
        self,
        body: Callable[P, R],
        job_type: str,
        options: TaskOptions,
        link: LazyClient,
    ) -> None:
        functools.update_wrapper(self, body)
        self._job_type = job_type
        self._options = options
        self._link = link

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.__wrapped__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.__module__}.{self.__name__}>"

    def options(self, **changes: Unpack[TaskOptions]) -> Function[P, R]:
        """The same function with other options for its tasks."""
        _check_options(changes)
        merged: TaskOptions = {**self._options, **changes}
        if "labels" in changes:
            merged["labels"] = {**self._options["labels"], **changes["labels"]}
        return Function(self.__wrapped__, self._job_type, merged, self._link)

    def using(self, client: Client) -> Function[P, R]:
        """The same function through this client, instead of a `Client()`."""
        return Function(
            self.__wrapped__, self._job_type, self._options, LazyClient(client)
        )

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Handle:
        """Hand a call to the cluster; returns as soon as it is stored.

        Raises:
            TypeError: the function does not take these arguments.
            InvalidField: JSON cannot carry them, or the function cannot travel.
            TooLarge: its project folder is too large to travel.
        """
        from corral.client.functions.map import submit_call

        call, arguments = self._prepare(args, kwargs)
        client = self._link.blocking()
        return Handle(client.drive(submit_call(call, arguments)), self._link)

    async def asubmit(self, *args: P.args, **kwargs: P.kwargs) -> Handle:
        """`submit`, awaited."""
        from corral.client.functions.map import submit_call

        call, arguments = self._prepare(args, kwargs)
        async with self._link.awaiting() as client:
            return Handle(await client.drive(submit_call(call, arguments)), self._link)

    def map(
        self,
        *iterables: Iterable[Any],
        ordered: bool = True,
        keep_errors: bool = False,
        progress: bool | None = None,
    ) -> Iterator[Any]:
        """Results of a call for each item, as the built-in `map` pairs them up.

        Nothing is sent before the first result is asked for; then a few thousand
        calls are kept on their way, and the iterables read as these end.

        Args:
            iterables: One for each argument of the function.
            ordered: In the order of the calls; else as they end.
            keep_errors: Hand out the TaskFailed of a call that failed in the place
                of its result, instead of raising it.
            progress: Show a bar on stderr; without a word, when that is a terminal.

        Raises:
            TaskFailed: a call did not complete. Those already sent go on.
        """
        from corral.client.functions.map import feed

        call, arguments = self._call(), self._each(iterables)

        def results() -> Iterator[Any]:
            with bar(self.__name__, is_shown=progress) as advance:
                yield from self._link.blocking().iterate(
                    feed(
                        call,
                        arguments,
                        ordered=ordered,
                        keep_errors=keep_errors,
                        on_progress=advance,
                        total=_length(iterables),
                    )
                )

        return results()

    async def amap(
        self,
        *iterables: Iterable[Any],
        ordered: bool = True,
        keep_errors: bool = False,
        progress: bool | None = None,
    ) -> AsyncIterator[Any]:
        """`map`, for `async for`."""
        from corral.client.functions.map import feed

        call, arguments = self._call(), self._each(iterables)
        async with self._link.awaiting() as client:
            with bar(self.__name__, is_shown=progress) as advance:
                stream = feed(
                    call,
                    arguments,
                    ordered=ordered,
                    keep_errors=keep_errors,
                    on_progress=advance,
                    total=_length(iterables),
                )
                async for value in client.iterate(stream):
                    yield value

    def _prepare(self, args: Any, kwargs: Any) -> tuple[FunctionCall, Arguments]:
        from corral.client.functions.map import check_arguments

        inspect.signature(self.__wrapped__).bind(*args, **kwargs)
        what = f"the arguments of {self.__name__}"
        return self._call(is_one=True), check_arguments((args, kwargs), what)

    def _call(self, *, is_one: bool = False) -> FunctionCall:
        from corral.client.functions.map import FunctionCall

        sources.refuse_while_importing(self.__name__)
        self._check_name()
        for name in () if is_one else _FOR_ONE:
            if name in self._options:
                raise InvalidField(f"{name} is for one call, not for map", field=name)
        found = sources.find_source(_plain(self.__wrapped__))
        return FunctionCall(
            found, self._job_type, self._options, self._link.blocking().url
        )

    def _check_name(self) -> None:
        """Where it runs it is looked up by its name: that must mean this function."""
        home = sys.modules.get(self.__module__)
        found = getattr(home, self.__name__, None)
        if getattr(found, "__wrapped__", None) is not self.__wrapped__:
            raise InvalidField(
                f"{self.__module__}.{self.__name__} is not this task: write "
                "@corral.task above the function itself",
                field="function",
            )

    def _each(self, iterables: tuple[Iterable[Any], ...]) -> Iterator[Arguments]:
        from corral.client.functions.map import check_arguments

        inspect.signature(self.__wrapped__).bind(*iterables)
        calls = enumerate(zip(*iterables, strict=False))
        return (
            check_arguments((args, {}), f"call {number} of {self.__name__}")
            for number, args in calls
        )


@overload
def task(body: Callable[P, R], /) -> Function[P, R]: ...
@overload
def task(
    *,
    gpu_memory_mb: int | None = None,
    job_type: str = JOB_TYPE,
    **options: Unpack[TaskOptions],
) -> Callable[[Callable[P, R]], Function[P, R]]: ...
def task(
    body: Callable[P, R] | None = None,
    /,
    *,
    gpu_memory_mb: int | None = None,
    job_type: str = JOB_TYPE,
    **options: Unpack[TaskOptions],
) -> Any:
    """Make a function of a module a task: `@corral.task` or `@corral.task(...)`.

    Args:
        body: The function.
        gpu_memory_mb: The GPU memory a call needs; a label of its tasks.
        job_type: Which workers run it: those that serve this type.
        options: As for a submit: `retries`, `timeout`, `priority`, `labels`, ...

    Raises:
        InvalidField: it is no function of a module, or an option is wrong.
    """
    check_name(job_type, "job_type")
    _check_options(options)
    if body is None:
        return functools.partial(_make, gpu_memory_mb, job_type, options)
    return _make(gpu_memory_mb, job_type, options, body)


def _make(
    gpu_memory_mb: int | None,
    job_type: str,
    options: TaskOptions,
    body: Callable[P, R],
) -> Function[P, R]:
    plain = _plain(body)
    labels = {**options.get("labels", {})}
    labels["function"] = f"{plain.__module__}.{plain.__name__}"[:256]
    if gpu_memory_mb is not None:
        if type(gpu_memory_mb) is not int or not 0 < gpu_memory_mb <= 10**9:
            raise InvalidField("gpu_memory_mb is no memory size", field="gpu_memory_mb")
        labels["gpu_memory_mb"] = str(gpu_memory_mb)
    whole: TaskOptions = {**options, "labels": labels}
    return Function(body, job_type, whole, _shared)


def _plain(body: Any) -> FunctionType:
    if not isinstance(body, FunctionType):
        raise _refusal(f"{body!r:.80}", "is not a function")
    if body.__name__ == "<lambda>":
        raise _refusal("a lambda", "has no name to find it by: write def")
    if "<locals>" in body.__qualname__:
        raise _refusal(body.__qualname__, "is made inside a function: move it out")
    if body.__qualname__ != body.__name__:
        raise _refusal(body.__qualname__, "is a method: write a function of the module")
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise _refusal(body.__name__, "is a generator: return a list")
    return body


def _refusal(what: str, why: str) -> InvalidField:
    return InvalidField(f"{what} cannot be a task: it {why}", field="function")


def _check_options(options: TaskOptions) -> None:
    unknown = options.keys() - TaskOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"a task has no option {min(unknown)!r}")


def _length(iterables: tuple[Iterable[Any], ...]) -> int | None:
    sizes = [len(each) for each in iterables if isinstance(each, Sized)]
    return min(sizes) if len(sizes) == len(iterables) else None
