from pathlib import Path

from bench import numbered, preparing
from bench.processes import Service


def test_what_is_published_is_told_apart_by_site_order_and_content(tmp_path: Path) -> None:
    with Service(tmp_path / "data") as service:
        one, less = preparing.topics(service, preparing.project(service, "P"), "t", 2)
        for topic, messages in ((one, 1500), (less, 1000)):
            numbered.publish(service, topic, messages)

        all_of_it, by_site = numbered.held(service, one), numbered.held_by_site(service, one)

        assert all_of_it.messages == 1500
        assert [each.messages for each in by_site] == [375] * 4
        assert sum(each.hashes for each in by_site) == all_of_it.hashes
        assert numbered.held(service, less).hashes != all_of_it.hashes
        assert len({each.in_order for each in by_site}) == 4
