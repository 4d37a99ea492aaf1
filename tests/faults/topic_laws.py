"""Laws 1 and 2 over one topic: what it holds in the end against what publishers were answered."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tests.faults.attempts import Held, Outcome, Publish, Pull

Places = dict[str, list[int]]


def violations(topic: str, held: Sequence[Held], publishes: Sequence[Publish]) -> Iterator[str]:
    """Yield what is wrong with a topic; `held` is all of it, read from the beginning."""
    places = _places(held)
    yield from _not_consecutive(topic, held)
    yield from _invented(topic, held, publishes)
    for publish in publishes:
        yield from _repeated(publish, places)
        yield from _misplaced(publish, places)
        yield from _torn(publish, places)
    yield from _overtaken(topic, publishes)


def misdelivered(held: Sequence[Held], pulls: Sequence[Pull]) -> Iterator[str]:
    """Yield the pulls that were given something else than the topic holds, or with gaps."""
    names = dict(held)
    for pull in pulls:
        ids = [message.id for message in pull.messages]
        if ids and ids != list(range(ids[0], ids[0] + len(ids))):
            yield f"law 3: pull {pull.request} was given ids that do not follow each other: {_first_break(ids)}"
        wrong = [message for message in pull.messages if names.get(message.id) != message.name]
        if wrong:
            found = names.get(wrong[0].id, "nothing")
            yield f"law 2: pull {pull.request} was given {wrong[0].name} as id {wrong[0].id}, where {found} is" + more(
                wrong
            )


def _places(held: Sequence[Held]) -> Places:
    places: Places = {}
    for message in held:
        places.setdefault(message.name, []).append(message.id)
    return places


def _not_consecutive(topic: str, held: Sequence[Held]) -> Iterator[str]:
    for expected, message in enumerate(held):
        if message.id != expected:
            yield f"law 2: topic {topic} has id {message.id} ({message.name}) where id {expected} should be"
            return


def _invented(topic: str, held: Sequence[Held], publishes: Sequence[Publish]) -> Iterator[str]:
    published = {name for publish in publishes for name in publish.names}
    invented = [message for message in held if message.name not in published]
    if invented:
        yield f"law 2: topic {topic} holds {invented[0].name} as id {invented[0].id}, which nobody published" + more(
            invented
        )


def _repeated(publish: Publish, places: Places) -> Iterator[str]:
    repeated = [name for name in publish.names if len(places.get(name, ())) > 1]
    if repeated:
        ids = " and ".join(str(each) for each in places[repeated[0]])
        yield f"law 1: message {repeated[0]} of request {publish.request} is stored as ids {ids}" + more(repeated)


def _misplaced(publish: Publish, places: Places) -> Iterator[str]:
    if publish.outcome is Outcome.DONE:
        yield from _not_as_answered(publish, places)
    elif publish.outcome is Outcome.REFUSED:
        stored = [name for name in publish.names if name in places]
        if stored:
            yield (
                f"law 2: request {publish.request} was refused, yet its message {stored[0]} is stored as id"
                f" {places[stored[0]][0]}" + more(stored)
            )


def _not_as_answered(publish: Publish, places: Places) -> Iterator[str]:
    if len(publish.ids) != len(publish.names):
        yield f"law 1: request {publish.request} of {len(publish.names)} messages was answered {len(publish.ids)} ids"
        return
    if list(publish.ids) != list(range(publish.ids[0], publish.ids[0] + len(publish.ids))):
        yield f"law 2: request {publish.request} was answered ids that do not follow each other: " + _first_break(
            publish.ids
        )
    answered = list(zip(publish.names, publish.ids, strict=True))
    lost = [(name, number) for name, number in answered if name not in places]
    if lost:
        name, number = lost[0]
        yield f"law 1: message {name} of request {publish.request}, acknowledged as id {number}, is lost" + more(lost)
    moved = [(name, number) for name, number in answered if name in places and number not in places[name]]
    if moved:
        name, number = moved[0]
        yield (
            f"law 1: message {name} of request {publish.request}, acknowledged as id {number}, is stored as id"
            f" {places[name][0]}" + more(moved)
        )


def _torn(publish: Publish, places: Places) -> Iterator[str]:
    """Find requests that are there in part, or not in their order."""
    stored = [places[name][0] for name in publish.names if name in places]
    if not stored:
        return
    if len(stored) < len(publish.names):
        missing = next(name for name in publish.names if name not in places)
        yield (
            f"law 2: {len(stored)} of {len(publish.names)} messages of request {publish.request} are stored;"
            f" {missing} is not"
        )
    elif stored != list(range(stored[0], stored[0] + len(stored))):
        yield f"law 2: request {publish.request} is not stored in its order: " + _first_break(stored)


def _overtaken(topic: str, publishes: Sequence[Publish]) -> Iterator[str]:
    """Find requests whose ids are below those of a request that was answered before they began."""
    done = [each for each in publishes if each.outcome is Outcome.DONE and each.ids]
    earlier = iter(sorted(done, key=lambda each: each.ended))
    candidate = next(earlier, None)
    highest: Publish | None = None
    for publish in sorted(done, key=lambda each: each.started):
        while candidate is not None and candidate.ended < publish.started:
            if highest is None or candidate.ids[-1] > highest.ids[-1]:
                highest = candidate
            candidate = next(earlier, None)
        if highest is not None and publish.ids[0] <= highest.ids[-1]:
            yield (
                f"law 2: request {publish.request} to topic {topic} was answered id {publish.ids[0]}, but request"
                f" {highest.request} had been answered id {highest.ids[-1]} before it began"
            )


def _first_break(ids: Sequence[int]) -> str:
    before, after = next((before, after) for before, after in pairwise(ids) if after != before + 1)
    return f"after {before} comes {after}"


def more(found: Sequence[object]) -> str:
    """Return how many were found beside the first, as the end of a sentence."""
    return f" (and {len(found) - 1} more)" if len(found) > 1 else ""
