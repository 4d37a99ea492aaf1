"""The made-up world of monitoring: the same for a seed, in the shape of the real one."""

from collections import Counter
from datetime import date
from pathlib import Path

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.availability.inputs import Options, inputs
from ams.pipeline.jobs.availability.parse import parse_results
from demo.pipeline.samples.mishaps import Mishaps
from demo.pipeline.samples.monitoring import TOPICS, files, messages, results

DAY = date(2024, 3, 5)
MISHAPS = Mishaps(late=0.1, doubled=0.05, broken=0.01)


def test_a_seed_makes_the_same_messages_and_another_one_others() -> None:
    made = list(messages(1, DAY, sites=1))

    assert made == list(messages(1, DAY, sites=1))
    assert made != list(messages(2, DAY, sites=1))
    assert {sample.topic for sample in made} == set(TOPICS)


def test_most_results_are_ok_and_some_are_late_doubled_or_broken() -> None:
    parse = parse_results("current")
    statuses: Counter[str] = Counter()
    days: Counter[str] = Counter()
    made = list(results(1, DAY, sites=3, mishaps=MISHAPS, day_late=0.02))
    for sample in made:
        try:
            [found] = parse(sample.data, sample.attributes)
        except Broken:
            statuses["broken"] += 1
            continue
        statuses[found["status"]] += 1
        days[found["date"]] += 1

    assert 0.9 < statuses["OK"] / len(made) < 0.99
    assert 0.005 < statuses["broken"] / len(made) < 0.02
    assert set(days) == {"2024-03-04", "2024-03-05"}
    assert 0.01 < days["2024-03-04"] / len(made) < 0.04
    assert len({sample.data for sample in made}) < len(made)


def test_the_files_fit_the_messages(tmp_path: Path) -> None:
    found = inputs(Options(**files(1, DAY, tmp_path, sites=5)))

    assert len(found.sites["2024-03-05"]) == 5
    assert found.lists.downtimes[""]
    assert {each.service for each in found.lists.downtimes[""]} <= set(found.rules[""].metrics)
