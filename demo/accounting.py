"""A site's accounting batches: what its batch system ran, told to the accounting repository.

Each message is a text of individual job records, as the APEL parsers write them: a first line with type and version,
then `Key: value` lines, each record closed by `%%`. Times are epoch seconds, durations seconds, memory kB.
The attribute `empaid` is the name the message had in the sender's directory queue.
"""

from collections.abc import Iterator
from random import Random

from demo.ledger import Message

FIRST_LINE = "APEL-individual-job-message: v0.3"
SITE = "SITE-A"
COMPUTING_ELEMENT = "ce01.site-a.example"
VIRTUAL_ORGANISATIONS = ("atlas", "cms", "lhcb", "alice", "biomed", "ops")
DAY = 1709596800
"""2024-03-05T00:00:00Z: all jobs of the batch end on this day."""


def batches(seed: int, count: int) -> Iterator[Message]:
    """Make `count` messages of 4 to 16 job records each, always the same for a seed."""
    random = Random(seed)
    job = random.randrange(1_000_000, 2_000_000)
    for _ in range(count):
        jobs = random.randint(4, 16)
        records = [_job_record(random, job + each) for each in range(jobs)]
        job += jobs
        text = "\n".join([FIRST_LINE, *records, ""])
        yield Message({"empaid": _queue_name(random)}, text.encode())


def _job_record(random: Random, job: int) -> str:
    vo = random.choice(VIRTUAL_ORGANISATIONS)
    user = random.randint(1, 40)
    role = random.choice(("production", "pilot", "NULL"))
    processors = random.choice((1, 1, 8, 8, 64))
    wall = int(60 * 2 ** random.uniform(0, 12))  # a minute to three days, short ones most often
    cpu = int(wall * processors * random.uniform(0.5, 0.98))
    end = DAY + random.randrange(86400)
    memory = random.randint(200_000, 4_000_000) * processors
    fields = {
        "Site": SITE,
        "SubmitHost": f"{COMPUTING_ELEMENT}:9619/htcondor",
        "MachineName": COMPUTING_ELEMENT,
        "Queue": "condor",
        "LocalJobId": job,
        "LocalUserId": f"{vo}{user:03}",
        "GlobalUserName": f"/DC=org/DC=example/O={vo}/CN=user {user}",
        "FQAN": f"/{vo}/Role={role}/Capability=NULL",
        "VO": vo,
        "VOGroup": f"/{vo}",
        "VORole": f"Role={role}",
        "WallDuration": wall,
        "CpuDuration": cpu,
        "Processors": processors,
        "NodeCount": 1,
        "StartTime": end - wall,
        "EndTime": end,
        "InfrastructureDescription": "APEL-HTCONDOR",
        "InfrastructureType": "grid",
        "MemoryReal": memory,
        "MemoryVirtual": int(memory * 1.4),
        "ServiceLevelType": "hepscore23",
        "ServiceLevel": f"{random.uniform(8, 22):.2f}",
    }
    lines = [f"{key}: {value}" for key, value in fields.items()]
    return "\n".join([*lines, "%%"])


def _queue_name(random: Random) -> str:
    return f"{random.getrandbits(32):08x}/{random.getrandbits(56):014x}"
