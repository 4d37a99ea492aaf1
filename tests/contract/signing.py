"""Secrets of signatures: what no contract has."""

from tests.contract.push_words import *
from tests.contract.rows import *

ROTATE = SUBSCRIPTION + ":rotatePushSecret"
SECRET = Like(r"whsec_[A-Za-z0-9+/]{43}=")
FIRST = Answer({"secret": SECRET})
NEXT = Answer({"secret": SECRET, "previousValidUntil": DATE})
BAD_KEEP = error("IA", "Field keepSeconds should be between 0 and 2592000")
BAD_BODY = error("IA", "Invalid Push Secret Arguments")
NOT_HTTP = error("CO", "Subscription is not in http push mode")
PUSHED = (A_TOPIC, create(AN_ENDPOINT))
WITH_ONE = (*PUSHED, post(ROTATE))


def keep(seconds: object, by: str = "admin") -> Ask:
    return post(ROTATE, {"keepSeconds": seconds}, by)


ROWS = [
    row("ours secret", "the first one is alone", post(ROTATE), FIRST, PUSHED),
    row("ours secret", "an empty object says as little", post(ROTATE, {}), FIRST, PUSHED),
    row("ours secret", "the one before ends later", post(ROTATE), NEXT, WITH_ONE),
    row("ours secret", "or as asked", keep(30 * 86_400), NEXT, WITH_ONE),
    row("ours secret", "or at once", keep(0), FIRST, WITH_ONE),
    *[row("ours secret", f"no time to keep one: {each}", keep(each), BAD_KEEP, PUSHED)
      for each in (-1, 2_592_001, 2**62)],
    *[row("ours secret", f"no such body: {each!r}", post(ROTATE, each), BAD_BODY, PUSHED)
      for each in ({"keepSeconds": "1"}, {"keepSeconds": 1.5}, [], b"{", {"keepSeconds": 10**30})],
    row("ours secret", "an unknown subscription", post(ROTATE), NO_SUBSCRIPTION),
    row("ours secret", "a pull subscription", post(ROTATE), NOT_HTTP, BOTH),
    row("ours secret", "mattermost is not signed", post(ROTATE), NOT_HTTP, WITH_HOOK),
    row("ours secret", "a pull subscription has lost them", modify(AN_ENDPOINT), Answer(b""), (*WITH_ONE, modify({})),
        ((post(ROTATE), FIRST),)),
    row("ours secret", "a subscription does not show it", SHOW, Answer(Has(secret=None, pushConfig=Has(secret=None))),
        WITH_ONE, kept(Answer(Has(secret=None)))),
    row("ours secret", "for administrators", post(ROTATE, by="adm"), FIRST, (*PUSHED, ADMIN)),
    row("ours secret", "not for consumers", post(ROTATE, by="con"), FORBIDDEN, (*PUSHED, CONSUMER)),
    row("ours secret", "nor for workers", post(ROTATE, by="worker"), FORBIDDEN, PUSHED),
]  # fmt: skip
