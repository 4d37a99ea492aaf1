"""One provisioning run: reads GOCDB, plans, carries out, and plans again after concurrent changes."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ams.client import wire
from ams.core.errors import ServiceFailed
from ams.provisioning import endpoints
from ams.provisioning.declarations import Ask, Fields, Note, ResourceKey, ResourceKind, Step, StepSign
from ams.provisioning.execution import ROUNDS, CarryingOut
from ams.provisioning.gocdb import Feed
from ams.provisioning.plan import Target, plan, read_target


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a run: `email` for users whose site tells none, topics by endpoint (11b) or type (11a), a consumer."""

    service_types: Sequence[str]
    role: str
    email: str = ""
    own_topics: bool = False
    consumer: str = ""
    dry_run: bool = False
    remove: bool = False
    max_removals: int = 5


@dataclass(slots=True)
class ProvisionReport:
    """Result of a run; `faults` are about several endpoints, `kept` says why nothing was removed."""

    judged: dict[str, endpoints.JudgedListing] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    failed: list[endpoints.LeftOut] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    vanished: endpoints.VanishedResources = field(default_factory=endpoints.VanishedResources)
    kept: str = ""

    @property
    def left_out(self) -> list[endpoints.LeftOut]:
        """All endpoints that are not served."""
        return [each for judged in self.judged.values() for each in judged.left_out]

    @property
    def users_created(self) -> list[str]:
        """Users who joined the project."""
        added = (step.key for step in self.steps if step.change is StepSign.ADD)
        return [key.name for key in added if key.kind is ResourceKind.MEMBER]

    @property
    def bindings_updated(self) -> list[str]:
        """Bindings that got another certificate or user."""
        altered = (step.key for step in self.steps if step.change is StepSign.ALTER)
        return list(dict.fromkeys(key.name for key in altered if key.kind is ResourceKind.BINDING))

    @property
    def well(self) -> bool:
        """True if nothing failed; endpoints that are left out by rule do not count."""
        return not (self.failed or self.faults or self.kept)


def provision(feed: Feed, ask: Ask, target: Target, options: RunOptions, note: Note) -> ProvisionReport:
    """Provision GOCDB's endpoints; `note` gets the progress. Raises a `ClientError` that ends the run."""
    report = _read_listings(feed, options, note)
    served = [each for judged in report.judged.values() for each in judged.served]
    listed_failures = [each for each in report.left_out if not each.reason.by_rule]
    listed_faults = list(report.faults)
    find_user = functools.partial(wire.get_member, target.project)
    for _ in range(ROUNDS):
        existing = read_target(target, ask)
        made = endpoints.declare(served, existing, target, role=options.role, consumer=options.consumer)
        report.failed = [*listed_failures, *made.failed]
        report.faults = [*listed_faults, *made.faults]
        found = endpoints.find_vanished(report.judged, existing, made.users, own_topics=options.own_topics)
        report.vanished, report.kept, gone = found, "", dict[ResourceKey, Fields]()
        if options.remove and found.who:
            whole, most = not listed_faults, options.max_removals
            report.kept = endpoints.refusal(found, report.judged, whole=whole, most=most)
            gone = {} if report.kept else endpoints.removals(found, existing, target.project)
        steps = plan(made.to_declared(gone), existing)
        if options.dry_run:
            report.steps = steps
            return report
        carrying_out = CarryingOut(ask, note, existing=existing, find_user=find_user, words=words, each_alone=True)
        outcome = carrying_out.run(steps)
        report.steps += outcome.done
        _note_failures(report, served, outcome.failed)
        if not outcome.overtaken:
            break
    return report


def _read_listings(feed: Feed, options: RunOptions, note: Note) -> ProvisionReport:
    report = ProvisionReport()
    for service_type in options.service_types:
        try:
            listed = feed.endpoints(service_type)
        except ServiceFailed as error:
            report.faults.append(f"endpoints of {service_type}: {error.message}")
            continue
        note(f"{service_type}: {len(listed)} endpoints are listed; asking for their sites")
        judged = endpoints.judge(listed, feed.site, email=options.email, own_topics=options.own_topics)
        report.judged[service_type] = judged
    return report


def _note_failures(
    report: ProvisionReport, served: Sequence[endpoints.ServedEndpoint], failures: Sequence[tuple[Step, str]]
) -> None:
    owners = {str(each.endpoint): each for each in served}
    for step, text in failures:
        if (owner := owners.get(step.owner)) is None:
            report.faults.append(f"{words(step)}: {text}")
        else:
            report.failed.append(endpoints.LeftOut(owner.endpoint, endpoints.Reason.FAILED, f"{words(step)}: {text}"))


_VERBS: Mapping[ResourceKind, tuple[str, str, str]] = {
    ResourceKind.MEMBER: ("join", "", "leave"),
    ResourceKind.BINDING: ("bind", "alter", "unbind"),
    ResourceKind.TOPIC: ("make", "", ""),
    ResourceKind.SUBSCRIPTION: ("make", "", ""),
    ResourceKind.PUBLISHERS: ("allow", "allow", "disallow"),
    ResourceKind.CONSUMERS: ("allow", "allow", "disallow"),
}
_LIST_OF = {ResourceKind.PUBLISHERS: ResourceKind.TOPIC, ResourceKind.CONSUMERS: ResourceKind.SUBSCRIPTION}


def cells(step: Step) -> tuple[str, str, str]:
    """Return the verb of a step, its object and the rest, for people."""
    kind, name, said = step.key.kind, step.key.name, step.fields
    does = _VERBS[kind][list(StepSign).index(step.change)]
    if kind is ResourceKind.MEMBER:
        return does, name, said.get("email", "")
    if kind is ResourceKind.BINDING:
        user = f"user {said['user']}" if step.change is StepSign.ALTER and "user" in said else ""
        return does, name, ", ".join(each for each in (said.get("auth_identifier", ""), user) if each)
    rest = f"to topic {said['topic']}" if "topic" in said else ", ".join(said.get("users", ()))
    return does, f"{_LIST_OF.get(kind, kind)} {name}", rest


def words(step: Step) -> str:
    """Return a step in one line."""
    does, what, rest = cells(step)
    return f"{does} {what}" + (f" ({rest})" if rest else "")


def as_object(step: Step) -> dict[str, Any]:
    """Return a step as programs read it: what it does, and what is not empty of it."""
    kind, name, said = step.key.kind, step.key.name, step.fields
    does, _, _ = cells(step)
    found: dict[str, Any] = {"step": does, "endpoint": step.owner}
    if kind is ResourceKind.MEMBER:
        found |= {"user": name, "email": said.get("email")}
    elif kind in _LIST_OF:
        found |= {"kind": _LIST_OF[kind], "name": name, "users": said["users"]}
    else:
        found |= {kind: name, "dn": said.get("auth_identifier")}
        found |= {each: said[each] for each in ("user", "topic") if each in said}
    return {name: value for name, value in found.items() if value}
