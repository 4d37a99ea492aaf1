from collections.abc import Iterable

from ams.core.names import SubscriptionId
from ams.push.upstream import Target
from ams.wire.push import WorkerState


class TargetTable:
    def __init__(self) -> None:
        self.targets: dict[str, Target] = {}
        self.states: dict[str, WorkerState] = {}
        self.changes: dict[SubscriptionId, WorkerState] = {}
        self.stops: list[float] = []
        self.draining: set[str] = set()
        self.ends: float | None = None

    def follow(self, targets: Iterable[Target]) -> None:
        self.targets = {target.path: target for target in targets}

    def hold_until(self, ends: float | None) -> None:
        self.ends = ends

    def activate(self, target: Target) -> bool:
        if target.path in self.targets:
            return False
        self.targets[target.path] = target
        return True

    def deactivate(self, path: str) -> bool:
        return self.targets.pop(path, None) is not None

    def held_subscriptions(self) -> frozenset[SubscriptionId]:
        return frozenset(SubscriptionId(each.id) for each in self.targets.values() if each.id) | self.draining

    def state(self, path: str) -> WorkerState | None:
        return self.states.get(path, WorkerState()) if path in self.targets else None

    def take_changes(self) -> dict[SubscriptionId, WorkerState]:
        changes, self.changes = self.changes, {}
        return changes

    def put_back(self, changes: Iterable[SubscriptionId]) -> None:
        for each in changes:
            self.changes.setdefault(each, WorkerState())

    async def stop(self, seconds: float) -> None:
        self.stops.append(seconds)
        self.targets = {}
