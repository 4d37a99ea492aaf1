"""The embedded log against a plain list, through seals, changes of class, restarts, and cold files."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from ams.core.messages import message
from ams.core.names import TopicId
from ams.storage.log.base import Bounds
from ams.storage.log.embedded import EmbeddedLog, check
from tests.storage.log.embedded.history import run_scenario
from tests.storage.log.engines import HOUR, Embedded, new_topic

TOPIC = st.integers(0, 2)
DAY = 24 * HOUR
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), TOPIC, st.lists(st.sampled_from([0, 50, 700]), min_size=1, max_size=5)),
        st.tuples(st.just("append"), TOPIC, st.just([30_000, 40_000, 10])),
        st.tuples(st.just("set_retention"), TOPIC, st.sampled_from([2 * DAY, 8 * DAY, None])),
        st.tuples(st.just("advance"), st.sampled_from([1, 1000, HOUR])), st.tuples(st.just("retain")),
        st.tuples(st.just("reopen")), st.tuples(st.just("rebuild")),
    ),
    max_size=25,
)  # fmt: skip

READ = st.tuples(
    st.integers(0, 60), st.integers(1, 30), st.sampled_from([1, 900, 10**6]),
    st.sampled_from([0, 1, 999, 1000, HOUR, 5 * HOUR]),
)  # fmt: skip
"""Where to begin, how many messages, how many bytes, and how far back in time to look for an offset."""


@dataclass
class Model:
    topic: TopicId
    messages: list[tuple[bytes, int]] = field(default_factory=list)

    async def compare(self, log: EmbeddedLog, start: int, limit: int, max_bytes: int, back: int, now: int) -> None:
        end = len(self.messages)
        assert await log.bounds(self.topic) == Bounds(0, end)
        found = await log.read(self.topic, start, max_messages=limit, max_bytes=max_bytes)
        assert [tuple(each) for each in found] == self._read_messages(start, limit, max_bytes)
        wanted = now - back
        at = next((offset for offset, (_, time) in enumerate(self.messages) if time >= wanted), None)
        assert await log.offset_at(self.topic, wanted) == at

    def _read_messages(self, start: int, limit: int, max_bytes: int) -> list[tuple[int, int, bytes]]:
        found, size = [], 0
        for offset, (fragment, time) in list(enumerate(self.messages))[start : start + limit]:
            size += len(fragment)
            if found and size > max_bytes:
                break
            found.append((offset, time, fragment))
        return found


@settings(max_examples=80)
@given(STEPS, st.booleans(), st.lists(READ, min_size=3, max_size=3))
def test_the_log_holds_what_a_list_would(steps, cold, reads) -> None:
    async def scenario():
        engine = Embedded(options={"segment_bytes": 3000})
        log = await engine.open()
        models = [Model(await new_topic(log)) for _ in range(3)]
        engine.disk.cold = cold
        for name, *arguments in steps:
            log = await step(engine, log, models, name, *arguments)
        for model, (start, limit, max_bytes, back) in zip(models, reads, strict=True):
            start %= len(model.messages) + 1
            await model.compare(log, start, limit, max_bytes, back, engine.clock.now)
        await log.retain()
        await log.close()
        assert not check(engine.folder, files=engine.disk).damage

    run_scenario(scenario())


async def step(engine: Embedded, log: EmbeddedLog, models: list[Model], name: str, *arguments) -> EmbeddedLog:
    if name == "append":
        model = models[arguments[0]]
        messages = [message(f"{len(model.messages) + n}." + "x" * size) for n, size in enumerate(arguments[1])]
        answer = await log.append(model.topic, messages)
        assert (answer.first, answer.count) == (len(model.messages), len(messages))
        model.messages += [(each.fragment, answer.time) for each in messages]
    elif name == "set_retention":
        await log.set_retention(models[arguments[0]].topic, arguments[1])
    elif name == "advance":
        engine.clock.advance(arguments[0])
    elif name == "retain":
        await log.retain()
    else:
        await log.close()
        if name == "rebuild":
            for path in engine.disk.paths(".idx"):
                engine.disk.damage(path, 70)
        return await engine.open()
    return log
