"""The base of all answers. It knows none of them."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Self, TypeVar

import msgspec

T = TypeVar("T")
Known = Annotated[T | None, msgspec.Meta(extra_json_schema={"nullable": False})]
"""What every manager of today sends; None where an older one did not."""


class PlainValue:
    """What every shape here can do, also one that is a value of `core` with a few
    fields more or wider: then it derives from that, as a dataclass.
    """

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @classmethod
    def of(cls, value: object, **others: Any) -> Self:
        """From a value with fields of the same names, and the `others`.

        One that neither has is a mistake: a default would be sent as if it were so.
        """
        names = getattr(cls, "__struct_fields__", None)
        if names is None:
            names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        same = {name: getattr(value, name) for name in names if name not in others}
        return msgspec.convert(same | others, cls, from_attributes=True)


class Value(PlainValue, msgspec.Struct, frozen=True, kw_only=True):
    """An answer, as a frozen typed value; `to_dict` gives plain JSON values back.

    A manager sends every field. Defaults are for readers: what an older manager leaves
    out has one, and what a newer one adds is ignored.
    """
