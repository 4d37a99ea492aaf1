"""Rules as people write them."""

import pytest

from ams.pipeline.jobs.options import read_options
from ams.pipeline.jobs.republish.job import Options
from ams.pipeline.jobs.republish.rules import Part, parts


def test_a_name_is_texts_and_attributes() -> None:
    assert parts("a-{x}_{topic}") == [Part("a-"), Part("", "x"), Part("_"), Part("", "topic")]
    assert parts("plain") == [Part("plain")]
    assert parts("{site name}") == [Part("", "site name")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topics": []}, "option topics: at least one is read"),
        ({"topics": ["a"]}, "option rules: there are none and no default"),
        ({"topics": ["a"], "default": ["a"]}, "a is read and written"),
        ({"topics": ["a"], "default": ["b.c"]}, "'b.c' is no name of a topic"),
        ({"topics": ["a"], "default": ["b", "b"]}, "stands there twice"),
        ({"topics": ["a"], "default": [""]}, "a topic has a name"),
        ({"topics": ["a"], "rules": [{"attribute": "x", "to": ["S_{x"]}]}, "is no name of a topic"),
        ({"topics": ["a"], "rules": [{"values": ["x"], "to": ["b"]}]}, "values without an attribute"),
        ({"topics": ["a"], "rules": [{"atribute": "x"}]}, "unknown field atribute"),
        ({"topics": ["a"], "default": ["b"], "batch_messages": 0}, "option batch_messages: Expected"),
    ],
)
def test_rules_that_cannot_be_are_told(options: dict[str, object], said: str) -> None:
    read, wrong = read_options(Options, options)

    assert read is None
    assert [each for each in wrong if said in str(each)]
