"""What this service adds to the contract about push: how deliveries go, and leases for processes that deliver."""

import hashlib

from tests.contract.push_words import *
from tests.contract.rows import *

STATUS = SUBSCRIPTION + ":pushStatus"
NO_PUSH = error("CO", "Subscription is not in push mode")
UNVERIFIED = (A_TOPIC, create(AN_ENDPOINT))
LISTED = listed(SUBSCRIPTION, "con")

LOOKING = [
    row("ours push status", "an endpoint that has not shown its hash", get(STATUS),
        Answer({"pushStatus": "", "state": "unverified", "backlog": 0, "attempts": []}), UNVERIFIED),
    row("ours push status", "the backlog is counted when it is asked for", get(STATUS),
        Answer(Has(backlog=3)), (*UNVERIFIED, publish("MA==", "MQ==", "Mg=="))),
    row("ours push status", "without its topic there is no backlog", get(STATUS), Answer(Has(backlog=None)),
        (*UNVERIFIED, delete("/projects/$P/topics/T"))),
    row("ours push status", "a subscription that is pulled from", get(STATUS), NO_PUSH, BOTH),
    row("ours push status", "an unknown subscription", get(STATUS), NO_SUBSCRIPTION),
    row("ours push status", "a consumer on the access list may ask", get(STATUS, "con"),
        Answer(Has(state="unverified")), (*UNVERIFIED, CON, LISTED)),
    row("ours push status", "a consumer that is not may not", get(STATUS, "con"), FORBIDDEN, (*UNVERIFIED, CON)),
    row("ours push status", "a publisher may not", get(STATUS, "pub"), FORBIDDEN,
        (*UNVERIFIED, member("pub", "publisher"))),
]  # fmt: skip

WORKER = user("pw", "push_worker")
VERSION = Like("[0-9a-f]{32}")
OF_NOTHING = hashlib.blake2b(b"[]", digest_size=16).hexdigest()


def heartbeat(by: str = "pw", **body: object) -> Ask:
    """One of a process that wants nothing, so that other rows meet no holder."""
    return post("/push:lease", {"holder": "row", "leaving": True, **body}, by)


BAD_BODY = error("IA", "Invalid Push Lease Arguments")
BAD_STATES = error("IA", "Invalid push lease states")
FAILED = {"time": 1, "what": "send", "detail": "no", "status": 500}
ATTEMPT = {"time": 1, "messages": 1, "status": 500, "milliseconds": 1, "bytes": 1}

BEATING = [
    row("ours push lease", "who leaves gets nothing", heartbeat(),
        Answer({"leaseSeconds": 6.0, "beatSeconds": 2.0, "version": VERSION, "targets": []}), (WORKER,)),
    row("ours push lease", "what it knows already is not repeated", heartbeat(version=OF_NOTHING),
        Answer(Has(version=OF_NOTHING, targets=None)), (WORKER,)),
    row("ours push lease", "states and subscriptions that nobody knows are passed over",
        heartbeat(held=["x"], states={"x": {"phase": "retrying", "failure": FAILED, "attempts": [ATTEMPT] * 100}}),
        Answer(Has(targets=[])), (WORKER,)),
    row("ours push lease", "push is disabled", heartbeat(), DISABLED, (WORKER,), served="usual"),
    *[row("ours push lease", f"no such body: {each!r}", post("/push:lease", each, "pw"), BAD_BODY, (WORKER,))
      for each in ([], {"holder": 1}, {"holder": "h", "held": [1]}, {"holder": "h", "states": {"x": 1}})],
    *[row("ours push lease", f"no name of a holder: {each!r}", heartbeat(holder=each),
          error("IA", "Invalid push lease holder"), (WORKER,)) for each in (None, "", "a b", "h" * 65)],
    *[row("ours push lease", says, heartbeat(held=each),
          error("IA", "A push lease holder may hold 10000 subscriptions"), (WORKER,))
      for says, each in (("too much is held", ["x"] * 10_001), ("what is held is no id", ["x" * 37]),
                         ("what is held is no text", ["x\0"]))],
    *[row("ours push lease", f"states that cannot be: {number}", heartbeat(states=each), BAD_STATES, (WORKER,))
      for number, each in enumerate((
          {str(name): {} for name in range(101)},
          {"x": {"attempts": [ATTEMPT] * 101}},
          {"x": {"failure": {**FAILED, "detail": "d" * 65_536}}},
          {"x": {"failure": {**FAILED, "time": -1}}},
          {"x": {"attempts": [{**ATTEMPT, "time": 10**18}]}},
          {"x": {"nextAttempt": 253_402_300_800_000}}
      ))],
    row("ours push lease", "an administrator delivers nothing", heartbeat("admin"), FORBIDDEN),
    row("ours push lease", "nor does a stranger", heartbeat("stranger"), UNAUTHORIZED),
]  # fmt: skip


def wait(by: str = "pw", **body: object) -> Ask:
    """One that does not wait for long."""
    return post("/push:wait", {"subscriptions": [], **body}, by)


WAITING = [
    row("ours push wait", "nothing to wait for", wait(), Answer({"ready": []}), (WORKER,)),
    row("ours push wait", "what nobody knows is ready at once", wait(subscriptions=["x"], seconds=30),
        Answer({"ready": ["x"]}), (WORKER,)),
    row("ours push wait", "push is disabled", wait(), DISABLED, (WORKER,), served="usual"),
    *[row("ours push wait", f"no such body: {each!r}", post("/push:wait", each, "pw"),
          error("IA", "Invalid Push Wait Arguments"), (WORKER,))
      for each in ([], {"subscriptions": [1]}, {"seconds": "1"})],
    *[row("ours push wait", says, wait(subscriptions=each), error("IA", "A push wait is for 1000 subscriptions"),
          (WORKER,)) for says, each in (
          ("too many", ["x"] * 1001), ("what is no identity", ["x" * 37]), ("what no database takes", ["x\0"]))],
    *[row("ours push wait", f"no time to wait: {each}", wait(seconds=each),
          error("IA", "A push wait is of 0 to 30 seconds"), (WORKER,)) for each in (-1, 31)],
    row("ours push wait", "an administrator delivers nothing", wait("admin"), FORBIDDEN),
    row("ours push wait", "nor does a stranger", wait("stranger"), UNAUTHORIZED),
]  # fmt: skip

ROWS = every(LOOKING, BEATING, WAITING)
