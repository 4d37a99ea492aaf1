"""What the clients of a campaign meet besides answers is judged too."""

from collections import Counter

from tests.faults.http_client import Traffic


def test_traffic_without_anything_wrong_is_not_complained_about() -> None:
    refused = Counter({"acks: 400 wrong ack": 3, "other requests: 400 no ack pending": 2})

    assert list(Traffic(refusals=refused).violations()) == []


def test_requests_that_nobody_answers_though_the_service_lives_are_told() -> None:
    assert list(Traffic(dropped=2).violations()) == [
        "2 requests were never answered, and nobody had killed the service"
    ]


def test_errors_that_do_not_say_when_to_try_again_are_told() -> None:
    assert list(Traffic(without_retry_after=1).violations()) == ["1 errors of the 500s did not say when to try again"]


def test_refusals_without_a_reason_are_told() -> None:
    refused = Counter({"other requests: 500 Backend Error": 7})

    assert list(Traffic(refusals=refused).violations()) == [
        "7 times refused for no reason: other requests: 500 Backend Error"
    ]
