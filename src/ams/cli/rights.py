"""Rights of tokens and role rules of issuers as text: as a command line says them, and tables and plans show them."""

from collections.abc import Iterable, Mapping, Sequence

from ams.cli.exits import Usage
from ams.client import wire
from ams.core.rights import ANY, CONSUME, PUBLISH, is_resource

ALL = "all of the user's"
"""What is shown of a token whose rights are not reduced."""


def resource(kind: str, text: str, project: str | None) -> str:
    """Return the topic or subscription that is meant, `kind` of the project in use or with its path; raise `Usage`."""
    path = text.removeprefix("/")
    if "/" not in path:
        if not project:
            raise Usage(f"{text!r} is of no project: give --project, or say projects/P/{kind}/{text}")
        path = f"projects/{project}/{kind}/{path}"
    if not is_resource(path) or f"/{kind}/" not in path:
        raise Usage(f"{text!r} is neither a name nor projects/P/{kind}/NAME")
    return path


def shorthands(publish: Sequence[str], consume: Sequence[str], project: str | None) -> list[wire.Right]:
    """Return what a client of these topics and subscriptions asks for."""
    topics = [resource("topics", each, project) for each in publish]
    subscriptions = [resource("subscriptions", each, project) for each in consume]
    found = [wire.Right(action=action, resource=each) for each in topics for action in PUBLISH]
    return found + [wire.Right(action=action, resource=each) for each in subscriptions for action in CONSUME]


def right(text: str) -> wire.Right:
    """Read ACTION=RESOURCE; raise `Usage` for what is none. Whether there is such an action the service says."""
    action, _, on = text.partition("=")
    on = on.removeprefix("/")
    if not (action == ANY or ":" in action) or not is_resource(on):
        raise Usage(f"{text!r} must look like ACTION=RESOURCE, such as topics:publish=projects/P/topics/T")
    return wire.Right(action=action, resource=on)


def right_text(given: wire.Right) -> str:
    """Write a right as it is read."""
    return f"{given.action}={given.resource}"


def rule_texts(rules: Iterable[wire.RoleRule]) -> tuple[str, ...]:
    """Write role rules as PROJECT=ROLE=ENTITLEMENT, one for each role, sorted; equal means the same roles for all."""
    return tuple(sorted({f"{rule.project}={role}={rule.entitlement}" for rule in rules for role in rule.roles}))


def rules(texts: Iterable[str]) -> list[wire.RoleRule]:
    """Read such texts, gathered by entitlement and project; raise `Usage` for what is none.

    The entitlement comes last, as it may hold any sign: `urn:mace:egi.eu:group:garden:role=member#aai.egi.eu`.
    """
    roles: dict[tuple[str, str], list[str]] = {}
    for text in texts:
        project, _, rest = text.partition("=")
        role, _, entitlement = rest.partition("=")
        if not (project and role and entitlement):
            raise Usage(f"{text!r} must look like PROJECT=ROLE=ENTITLEMENT")
        roles.setdefault((entitlement, project), []).append(role)
    return [_rule(entitlement, project, roles[entitlement, project]) for entitlement, project in roles]


def _rule(entitlement: str, project: str, roles: list[str]) -> wire.RoleRule:
    return wire.RoleRule(entitlement=entitlement, project=project, roles=roles)


def shown(rights: Sequence[wire.Right] | None) -> str:
    """Write rights for a table: actions on the same resource together."""
    if rights is None:
        return ALL
    actions: dict[str, list[str]] = {}
    for each in rights:
        actions.setdefault(each.resource, []).append(each.action)
    return "; ".join(f"{', '.join(_short(found))} on {on}" for on, found in actions.items())


def _short(actions: Sequence[str]) -> Sequence[str]:
    """Name the shorthands where they are meant."""
    names: Mapping[frozenset[str], str] = {frozenset(PUBLISH): "publish", frozenset(CONSUME): "consume"}
    name = names.get(frozenset(actions))
    return (name,) if name else actions
