"""The keys of people: made, listed and revoked; those of nodes are none of them.

Access checks keys; here is what administrators do with them.
"""

from __future__ import annotations

from corral.core.access.key import PEOPLE, Key, Scope, check_key_name
from corral.core.tasks.share import OWNER
from corral.errors import Conflict, InvalidField, NotFound
from corral.manager.access.keys import Access
from corral.manager.clock import Clock

LONGEST_S = 10 * 366 * 86_400.0


def people(access: Access) -> list[Key]:
    """Every key a person could use, by name, with when it was last used."""
    keys = [key for key in access.known() if key.scope in PEOPLE]
    return sorted(keys, key=lambda key: (key.name, key.id))


async def create(
    access: Access, clock: Clock, name: str, role: str, ttl_s: float | None
) -> tuple[Key, str]:
    """A new key and its text, which is not kept.

    Raises:
        InvalidField: a name, role or time that means nothing.
        Conflict: another key goes by that name.
    """
    check_key_name(name)
    if role not in PEOPLE:
        words = ", ".join(sorted(PEOPLE))
        raise InvalidField(f"role must be one of {words}", field="role")
    if ttl_s is not None and not 0 < ttl_s <= LONGEST_S:
        raise InvalidField("ttl_s must be over 0, at most ten years", field="ttl_s")
    now = clock.now()
    for key in access.known():
        if key.id == name or (key.name == name and key.is_valid(now)):
            raise Conflict(
                f"there is a key named {name} already; 'corral key revoke {name}' "
                "ends it, then the name is free",
                name=name,
            )
    return await access.create(Scope(role), name, ttl_s=ttl_s)


async def revoke(access: Access, clock: Clock, name: str, own: Key) -> Key:
    """End a key, by its name or its id; whoever has it is refused from now on.

    Raises:
        NotFound: no valid key of a person goes by that name.
        Conflict: it is the key that asks, or several go by that name.
    """
    now = clock.now()
    valid = [key for key in people(access) if key.is_valid(now)]
    found = [k for k in valid if k.id == name] or [k for k in valid if k.name == name]
    if not found:
        raise NotFound(f"no key {name[:200]!r} that is still good", key=name[:200])
    if len(found) > 1:
        ids = [key.id for key in found]
        raise Conflict(
            f"{len(found)} keys are named {name[:200]}: say which by its id, "
            f"{', '.join(ids)}",
            keys=ids,
        )
    (key,) = found
    if key.id == own.id:
        raise Conflict(
            "this is the key you are using: revoke it with another", key=key.id
        )
    await access.revoke(key.id)
    return key


def share_name(access: Access, name: str) -> str:
    """The name of a share, where `owner=ID` of a key means whoever that key is of."""
    key, _, value = name.partition("=")
    if key != OWNER:
        return name
    owners = {known.id: known.owner for known in people(access)}
    return f"{OWNER}={owners.get(value, value)}"
