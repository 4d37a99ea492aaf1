"""Compares what is declared with what exists: pure, so that its laws can be tested.

Carried out, a plan makes everything as declared; planned again, there is nothing to do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ams.client.wire.users import OF_SETTINGS
from ams.core.yaml_tree import bad
from ams.provisioning import parallel
from ams.provisioning.declared import SECRETS, Change, Declared, Existing, Fields, Key, Kind, Step
from ams.provisioning.fields import KEY_ID, TOKEN_FILE
from ams.provisioning.state import short_name

_ORDER = list(Kind)
_MADE_ANEW = (Kind.IDENTITY, Kind.TOKEN)
"""Kinds that cannot be altered but only removed and made, so that all of their fields are needed."""
_IS_KEY = "is a key, which is made by ams token create --google-file and never declared: give the token another name"
_DIFFERS = {"expires_on": "another end", "rights": "other rights"}


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What a plan may do beyond making and altering what is declared."""

    prune: bool = False
    """Remove what exists in a declared project, or of a declared service type or user, and is not declared, where the
    files have a section for its kind."""
    set_secrets: bool = False
    """Set secrets of auth methods and issuers anew, which cannot be compared."""
    renew_tokens: bool = False
    """Revoke tokens whose end or rights differ, and make them anew."""


def plan(declared: Declared, existing: Existing, options: PlanOptions = PlanOptions()) -> list[Step]:
    """Return the steps in the order in which they can be carried out.

    Raises `BadDocument` for references to nothing, and for what no step can do.
    """
    removed = {**declared.gone, **(_surplus(declared, existing) if options.prune else {})}
    _check_references(declared, existing, removed)
    keys = declared.fields if declared.in_order else sorted(declared.fields, key=_rank)
    steps = [step for key in keys if (step := _step(key, declared, existing, options))]
    last_first = sorted(removed, key=lambda key: (-_ORDER.index(key.kind), key))
    return steps + [Step(Change.REMOVE, key, removed[key]) for key in last_first]


def _rank(key: Key) -> int:
    return _ORDER.index(key.kind)


def _step(key: Key, declared: Declared, existing: Existing, options: PlanOptions) -> Step | None:
    wanted = _wanted(key, declared, existing)
    found = existing.fields.get(key)
    owner = declared.owners.get(key, "")
    if found is None:
        return Step(Change.ADD, key, wanted, owner)
    if KEY_ID in found:
        raise bad(declared.places[key], f"{key} {_IS_KEY}")
    changed = {
        name: value
        for name, value in wanted.items()
        if not _same(name, value, found.get(name)) or (options.set_secrets and name in SECRETS)
    }
    impossible = _impossible(key.kind, changed, found, options)
    if impossible:
        raise bad(declared.places[key], f"{key} {impossible}")
    if changed and key.kind in _MADE_ANEW:
        changed = {**found, **wanted}
    return Step(Change.ALTER, key, changed, owner) if changed else None


def _impossible(kind: Kind, changed: Fields, found: Fields, options: PlanOptions) -> str:
    """Return why a resource cannot be altered so, and what to do; empty when it can."""
    if not changed:
        return ""
    if kind is Kind.TOKEN:
        differs = " and ".join(_DIFFERS[name] for name in changed)
        remedy = "give --renew-tokens to revoke it and make it anew"
        return "" if options.renew_tokens else f"is there with {differs}: {remedy}"
    if kind is Kind.ISSUER and _is_of_settings(found):
        return f"is of the service's settings (issuers_file), where its {', '.join(changed)} must be changed"
    fixed = _fixed(kind, changed, found)
    return fixed and f"{fixed}; delete it first"


def _fixed(kind: Kind, changed: Fields, found: Fields) -> str:
    """Return which part of a resource cannot be another; empty when there is none."""
    if kind is Kind.SERVICE_TYPE and "type" in changed:
        return f"is of type {found['type']}, and a service type cannot change its type"
    if "topic" in changed:
        return f"is on topic {found['topic']}, and a subscription cannot change its topic"
    fixed = [name for name in parallel.FIXED if kind is Kind.SUBSCRIPTION and name in changed]
    if fixed:
        return f"has another {', '.join(fixed)}, which a subscription cannot change"
    if changed.get("schema") == {}:
        return "holds a schema of payloads, and the service cannot take that part away"
    return ""


def _wanted(key: Key, declared: Declared, existing: Existing) -> Fields:
    """Return the declared fields; on an access list, members without a role stay, and of entries only new ones count.

    Push workers are such members (HTTP contract 13.5): the service itself puts them on the list.
    """
    wanted = declared.fields[key]
    if "users" in wanted:
        there = existing.fields.get(key, {}).get("users", ())
        return {"users": tuple(user for user in wanted["users"] if user not in there)}
    if "access" not in wanted:
        return wanted
    listed = existing.fields.get(key, {}).get("access", ())
    kept = {user for user in listed if _has_no_role(Key(Kind.MEMBER, key.project, user), declared, existing)}
    return {**wanted, "access": tuple(sorted({*wanted["access"], *kept}))}


def _has_no_role(member: Key, declared: Declared, existing: Existing) -> bool:
    return member not in declared.fields and existing.fields.get(member) == {"roles": ()}


def _same(name: str, wanted: Any, found: Any) -> bool:
    if name == "push":
        return same_push(wanted, found or {})
    if name == "users":
        return not wanted
    if name == "headers":  # what is in them is not shown, and of an access key nothing at all
        return set(wanted) == set(found or ())
    if name == "client_secret":
        return bool(found)
    return name in ("access_key", TOKEN_FILE) or bool(wanted == found)


def same_push(declared: Fields, existing: Fields) -> bool:
    """Whether a push configuration is as declared; what is not declared may be anything."""
    if not declared:
        return not existing.get("type")
    dead_letters = short_name(existing.get("deadLetterTopic", ""))
    return _holds({**existing, "deadLetterTopic": dead_letters}, declared)


def _holds(existing: object, declared: object) -> bool:
    if isinstance(declared, Mapping):
        return isinstance(existing, Mapping) and all(_holds(existing.get(name), declared[name]) for name in declared)
    return existing == declared


def _is_of_settings(fields: Fields) -> bool:
    """Whether an issuer that is there cannot be changed over the API."""
    return fields.get("source") == OF_SETTINGS


def _surplus(declared: Declared, existing: Existing) -> dict[Key, Fields]:
    """Return what exists in a declared section and is not declared itself."""
    return {
        key: {}
        for key, fields in existing.fields.items()
        if key not in declared.fields
        and (key.project, key.kind) in declared.sections
        and not _stays(key, fields, existing.caller)
    }


def _stays(key: Key, fields: Fields, caller: str) -> bool:
    """Whether a resource is never pruned: the caller, members without a role, keys, issuers of the settings."""
    if key.kind is Kind.MEMBER:
        return key.name == caller or fields == {"roles": ()}
    if key.kind is Kind.TOKEN:
        return KEY_ID in fields
    return key.kind is Kind.ISSUER and _is_of_settings(fields)


def _check_references(declared: Declared, existing: Existing, removed: Mapping[Key, Fields]) -> None:
    for reference in declared.references:
        target = reference.target
        if target not in declared.fields and (target not in existing.fields or target in removed):
            raise bad(reference.place, f"{target} is neither declared nor there")
