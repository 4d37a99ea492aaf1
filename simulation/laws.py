"""Invariants at the end of a run, when faults have ended and the backlog is empty.

Most laws are shared with the fault campaigns: topics and ordered subscriptions in `simulation.histories.history`,
parallel ones in `simulation.histories.parallel_laws`. `simulation.clients` checks each answer (errors and deadlines),
and so does `simulation.workload` (created and deleted resources, access, quotas, retention, isolation of lists). The
law "holds ..., which nobody published" covers deliveries into another project: each project has its own history.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from simulation.clients import SimClient
from simulation.histories import parallel_laws as laws
from simulation.histories import parallel_scene as parallel
from simulation.histories.attempts import Ack, Attempt, Outcome, Publish, Pull, Seek
from simulation.histories.scene import count_violations, ending
from simulation.node import PULL_WAIT_SECONDS, Node
from simulation.workload import Stage


async def broken_laws(stage: Stage, admin: SimClient) -> list[str]:
    """Return the violations in a project, each as a sentence."""
    node = stage.node
    found = await ending(admin, stage.history.subscriptions)
    left = await parallel.ending(admin, stage.kinds)
    attempts = stage.attempts(node.ends)
    history = dataclasses.replace(stage.history, attempts=attempts, restarts=node.starts[1:])
    broken = [*history.violations(found), *await count_violations(admin, found)]
    if not stage.has_pauses:
        broken += slept_on(stage.history.subscriptions, attempts)
    for kind in stage.kinds:
        broken += laws.violations(kind, found.topics[kind.topic], attempts, left)
    return broken


def left_over(node: Node, deliveries: int) -> Iterator[str]:
    """Yield leases and waiting pulls that are left although the backlog is empty and no client asks.

    `deliveries`: number of push subscriptions; one worker of each may wait.
    """
    service = node.service
    assert service is not None
    for opened in service.working.opened.all():
        if opened.backlog.out:
            yield f"leak: {opened.backlog.out} messages of {opened.subscription.name} are on lease, and all are done"
    if service.deliverer.waiting > deliveries:
        yield f"leak: {service.deliverer.waiting} pulls wait, and nobody pulls"


WAKING_SECONDS = 1.0  # a waiting pull surely hears of a message within


def slept_on(subscriptions: Mapping[str, str], attempts: Sequence[Attempt]) -> Iterator[str]:
    """Yield missed wake-ups: waiting pulls that got nothing although a message came that nobody else took."""
    publishes = [each for each in attempts if isinstance(each, Publish) and each.outcome is Outcome.DONE]
    uses = [each for each in attempts if isinstance(each, Pull | Ack | Seek)]
    for pull in uses:
        if not isinstance(pull, Pull) or pull.outcome is not Outcome.DONE or pull.messages:
            continue
        if pull.ended - pull.started < PULL_WAIT_SECONDS:
            continue
        if any(
            not (isinstance(each, Pull) and each.outcome is Outcome.DONE and not each.messages)
            and each.subscription == pull.subscription
            and each.started < pull.ended
            and each.ended > pull.started
            for each in uses
        ):
            continue
        for publish in publishes:
            is_its_own = publish.topic == subscriptions[pull.subscription]
            if is_its_own and publish.started > pull.started and publish.ended < pull.ended - WAKING_SECONDS:
                yield (
                    f"wake-up: pull {pull.request} of {pull.subscription} waited from {pull.started:.3f} to"
                    f" {pull.ended:.3f} s and was given nothing, though {publish.request} was stored at"
                    f" {publish.ended:.3f} s"
                )
                break
