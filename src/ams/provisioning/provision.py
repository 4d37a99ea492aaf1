"""One run: GOCDB is asked, the plan made and carried out, and made again if others changed the same meanwhile."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ams.core.errors import ServiceFailed
from ams.provisioning.carrying_out import CarryingOut, Failure, told
from ams.provisioning.entitled import Entitled, Judged, LeftOut, Reason, judge
from ams.provisioning.feed import Feed
from ams.provisioning.plan import Alter, Join, Step, plan
from ams.provisioning.state import Ask, Place, State, read_state
from ams.provisioning.vanished import Vanished, refusal, removals, vanished

ROUNDS = 3
"""How often a plan is made at most while others change the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a run is to do."""

    service_types: Sequence[str]
    role: str
    email: str = ""
    """Of users whose site tells none."""
    own_topics: bool = False
    """Whether each endpoint has a topic and a subscription for itself (11b), or each type has a topic (11a)."""
    consumer: str = ""
    """Who reads the subscriptions of endpoints."""
    dry_run: bool = False
    remove: bool = False
    max_removals: int = 5


@dataclass(slots=True)
class Report:
    """What came of a run."""

    judged: dict[str, Judged] = field(default_factory=dict)
    """By service type."""
    steps: list[Step] = field(default_factory=list)
    """Those that were done; in a dry run, those that would be."""
    failed: list[LeftOut] = field(default_factory=list)
    """Endpoints for which not all could be done."""
    faults: list[str] = field(default_factory=list)
    """What went wrong otherwise: a listing that did not come, a topic that is not there, a step for nobody alone."""
    vanished: Vanished = field(default_factory=Vanished)
    kept: str = ""
    """Why nobody was taken away, although it was asked for."""

    @property
    def left_out(self) -> list[LeftOut]:
        """All endpoints that are not served."""
        return [each for judged in self.judged.values() for each in judged.left_out]

    @property
    def users_created(self) -> list[str]:
        """Users who joined the project."""
        return [step.user for step in self.steps if isinstance(step, Join)]

    @property
    def bindings_updated(self) -> list[str]:
        """Bindings that are of another certificate or user now."""
        return list(dict.fromkeys(step.binding for step in self.steps if isinstance(step, Alter)))

    @property
    def well(self) -> bool:
        """Whether nothing went wrong; endpoints that are left out by rule are none of our troubles."""
        return not (self.failed or self.faults or self.kept)


def provision(
    feed: Feed, ams: Ask, certificates: Ask, place: Place, wishes: Wishes, note: Callable[[str], None]
) -> Report:
    """Make what GOCDB lists; `note` hears of the progress. Raises a `ClientError` that ends everything."""
    report = Report()
    _read(feed, wishes, report, note)
    served = [each for judged in report.judged.values() for each in judged.served]
    report.failed = [each for judged in report.judged.values() for each in judged.failed()]
    listed_failures, listed_faults = list(report.failed), list(report.faults)
    for _ in range(ROUNDS):
        state = read_state(ams, certificates, place)
        made = plan(served, state, role=wishes.role, consumer=wishes.consumer)
        report.failed = [*listed_failures, *made.failed]
        report.faults = [*listed_faults, *made.faults]
        _look_for_vanished(report, state, wishes, made.users, whole=not listed_faults)
        steps = [*made.steps, *_removals(report, state, wishes)]
        if wishes.dry_run:
            report.steps = steps
            return report
        working = CarryingOut(ams, certificates, place, state, wishes.role, lambda step: note(f"done: {told(step)}"))
        outcome = working.run(steps)
        report.steps += outcome.done
        _note_failures(report, served, outcome.failed)
        if not outcome.overtaken:
            break
    return report


def _read(feed: Feed, wishes: Wishes, report: Report, note: Callable[[str], None]) -> None:
    for service_type in wishes.service_types:
        try:
            listed = feed.endpoints(service_type)
        except ServiceFailed as error:
            report.faults.append(f"endpoints of {service_type}: {error.message}")
            continue
        note(f"{service_type}: {len(listed)} endpoints are listed; asking for their sites")
        report.judged[service_type] = judge(listed, feed.site, email=wishes.email, own_topics=wishes.own_topics)


def _look_for_vanished(
    report: Report, state: State, wishes: Wishes, serving: Mapping[str, str], *, whole: bool
) -> None:
    report.vanished = vanished(report.judged, state, serving, own_topics=wishes.own_topics)
    if wishes.remove and report.vanished.who:
        report.kept = refusal(report.vanished, report.judged, whole=whole, most=wishes.max_removals)


def _removals(report: Report, state: State, wishes: Wishes) -> list[Step]:
    return removals(report.vanished, state) if wishes.remove and not report.kept else []


def _note_failures(report: Report, served: Sequence[Entitled], failures: Sequence[Failure]) -> None:
    endpoints = {str(each.endpoint): each for each in served}
    for each in failures:
        owner = endpoints.get(each.step.endpoint)
        if owner is None:
            report.faults.append(f"{told(each.step)}: {each.text}")
        else:
            report.failed.append(LeftOut(owner.endpoint, Reason.FAILED, f"{told(each.step)}: {each.text}"))
