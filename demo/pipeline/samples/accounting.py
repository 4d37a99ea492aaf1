"""Days of usage records: jobs, virtual machines and storage of the sites of a federation, signed as sites sign them.

Sites pack their jobs into messages a few times a day, and some jobs are only found weeks after they ended. Machines
live for months and are told of every day, each time with all they used since their start; the first day also brings a
record of the end of each month before. At the end of each day a site tells how many jobs of each month it believes it
has sent by then: `SITE-B` counts some that it lost.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property, partial
from pathlib import Path
from random import Random

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs7
from cryptography.x509.oid import NameOID

from demo.pipeline.samples import Mishaps, Sample, Timed

_FROM, _TO = datetime(2020, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC)
_OPTIONS = (pkcs7.PKCS7Options.DetachedSignature, pkcs7.PKCS7Options.Text)


@dataclass(frozen=True, slots=True)
class Sender:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def signed(self, text: bytes) -> bytes:
        """Return a text in an S/MIME envelope; the same text gives another signature each time."""
        builder = pkcs7.PKCS7SignatureBuilder().set_data(text).add_signer(self.certificate, self.key, SHA256())
        return builder.sign(Encoding.SMIME, _OPTIONS)


class Senders:
    """An authority, its senders, and the service that texts may be encrypted for."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # keys of nobody
        self._authority_key = self._key()
        name = _distinguished_name("Example CA")
        self.authority = self._certificate(name, name, self._authority_key.public_key(), is_authority=True)

    def sender(self, organisation: str, host: str) -> Sender:
        """Return a new sender, `/DC=org/DC=example/O=ORGANISATION/CN=HOST`."""
        key = self._key()
        return Sender(
            self._certificate(_distinguished_name(host, organisation), self.authority.subject, key.public_key()), key
        )

    @cached_property
    def _service(self) -> tuple[rsa.RSAPrivateKey, x509.Certificate]:
        key = rsa.generate_private_key(65537, 2048)
        return key, self._certificate(
            _distinguished_name("accounting.example.org"), self.authority.subject, key.public_key()
        )

    def encrypted(self, text: bytes) -> bytes:
        builder = pkcs7.PKCS7EnvelopeBuilder().set_data(text).add_recipient(self._service[1])
        return builder.encrypt(Encoding.SMIME, [pkcs7.PKCS7Options.Binary])

    def write(self, folder: Path) -> None:
        """Write `ca.pem`, and the service's `service.pem` and `service.key`, for the job that reads."""
        folder.mkdir(parents=True, exist_ok=True)
        key, certificate = self._service
        (folder / "ca.pem").write_bytes(self.authority.public_bytes(Encoding.PEM))
        (folder / "service.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
        (folder / "service.key").touch(mode=0o600)
        (folder / "service.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    def _key(self) -> ec.EllipticCurvePrivateKey:
        return ec.derive_private_key(self._random.getrandbits(255) + 1, ec.SECP256R1())

    def _certificate(
        self,
        subject: x509.Name,
        issuer: x509.Name,
        key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
        *,
        is_authority: bool = False,
    ) -> x509.Certificate:
        constraints = x509.BasicConstraints(ca=is_authority, path_length=None)
        builder = x509.CertificateBuilder(issuer, subject, key, self._random.getrandbits(100) + 1, _FROM, _TO)
        return builder.add_extension(constraints, critical=True).sign(self._authority_key, SHA256())


def _distinguished_name(host: str, organisation: str | None = None) -> x509.Name:
    parts = [(NameOID.DOMAIN_COMPONENT, "org"), (NameOID.DOMAIN_COMPONENT, "example")]
    parts += [(NameOID.ORGANIZATION_NAME, organisation)] if organisation else []
    return x509.Name([x509.NameAttribute(kind, text) for kind, text in [*parts, (NameOID.COMMON_NAME, host)]])


GRID, CLOUD, STORAGE = "gLite-APEL", "eu-egi-cloud-accounting", "eu-egi-storage-accounting"
TOPICS = (GRID, CLOUD, STORAGE)

VOS = ("atlas", "cms", "lhcb", "alice", "biomed", "ops", "vo.access.egi.eu")
ROLES = ("production", "pilot", "NULL")
LOST_AT, LOST = 1, 3
"""The site that loses jobs, and how many jobs of each day it counts and never sends."""
_DAY = timedelta(days=1)
_PER_MESSAGE = 200
_FOUND_LATE = 0.02


def messages(
    seed: int,
    day: date,
    *,
    days: int = 1,
    sites: int = 6,
    jobs: int = 2000,
    machines: int = 60,
    signed: bool = True,
    encrypted: float = 0.01,
    keys: str = "",
    mishaps: Mishaps | None = None,
) -> Iterator[Sample]:
    """Yield the messages of `days` days, the last of which is `day`, in the order they are published in.

    `jobs` is their number a day, of all sites together; a share `encrypted` of the messages is sealed for the service.
    Into the folder `keys` go the certificate of the authority and the service's key, when it is named. All texts
    depend on the arguments alone; signatures and seals are new each time.
    """
    # Mishaps have their own random numbers, so that they change no text.
    random, chance = Random(seed), Random(seed + 1)  # made-up data
    mishaps = mishaps or Mishaps()
    world = _World(random, Senders(seed), mishaps.broken, encrypted, signed)
    if keys:
        world.senders.write(Path(keys))
    spoilt = partial(_spoilt, chance=chance)
    return mishaps.applied(world.days(day, days, sites, jobs, machines), chance, spoilt)


@dataclass(frozen=True, slots=True)
class _Site:
    number: int
    name: str
    domain: str
    host: str
    level: str
    sender: Sender
    told: Counter[str]  # jobs it believes it has sent, by month


@dataclass(frozen=True, slots=True)
class _Machine:
    site: _Site
    name: str
    vo: str
    cores: int
    start: datetime
    end: datetime
    load: float
    image: str


@dataclass(frozen=True, slots=True)
class _World:
    random: Random
    senders: Senders
    broken: float
    encrypted: float
    signed: bool

    def days(self, last: date, days: int, sites: int, jobs: int, machines: int) -> Iterator[Timed]:
        first = datetime.combine(last, time(), UTC) - (days - 1) * _DAY
        there = [self.site(number) for number in range(sites)]
        running = [self.machine(there[number % sites], number, first, days) for number in range(machines)]
        for each in running:
            yield from self.months_before(each, first)
        for number in range(days):
            midnight = first + number * _DAY
            for site in there:
                yield from self.grid(site, midnight, jobs // sites)
                yield from self.cloud(site, midnight, [each for each in running if each.site is site])
                yield midnight + _DAY, self.sealed(site, STORAGE, self.storage(site, midnight))

    def site(self, number: int) -> _Site:
        letter = chr(ord("A") + number % 26) + (str(number // 26) if number >= 26 else "")
        domain = f"site-{letter.lower()}.example"
        host = f"ce01.{domain}"
        level = ("hepspec: 11.4", "si2k: 2875", "hepscore23: 15.3", "hepspec: 9.8")[number % 4]
        sender = self.senders.sender(f"Site-{letter}", host)
        return _Site(number, f"SITE-{letter}", domain, f"{host}:9619/htcondor", level, sender, Counter())

    # Jobs

    def grid(self, site: _Site, midnight: datetime, jobs: int) -> Iterator[Timed]:
        packs = max(1, -(-jobs // _PER_MESSAGE))
        for pack in range(packs):
            ends = midnight + (pack + 1) * _DAY / packs
            count = jobs // packs + (pack < jobs % packs)
            texts = [self.job(site, f"{midnight:%y%m%d}{pack:03}{number:03}", ends) for number in range(count)]
            yield ends, self.packed(site, GRID, "APEL-individual-job-message: v0.3", texts)
        if site.number == LOST_AT:
            site.told[f"{midnight:%Y-%m}"] += LOST
        texts = [_sync(site, month, count) for month, count in sorted(site.told.items())]
        yield midnight + _DAY, self.packed(site, GRID, "APEL-sync-message: v0.1", texts)

    def job(self, site: _Site, name: str, before: datetime) -> str:
        random = self.random
        wall = int(min(259_200, max(60, random.lognormvariate(8.5, 1.4))))
        cores = random.choice((1, 1, 1, 8, 8, 64))
        back = random.uniform(1, 35) if random.random() < _FOUND_LATE else random.uniform(0, 0.25)
        end = before - timedelta(days=back)
        vo, user = random.choice(VOS[:6]), random.randint(1, 20)
        benchmark, _, level = site.level.partition(": ")
        if random.random() < self.broken:
            wall = -wall
        else:
            site.told[f"{end:%Y-%m}"] += 1
        return _record(
            Site=site.name,
            SubmitHost=site.host,
            LocalJobId=name,
            LocalUserId=f"{vo}{user:03}",
            GlobalUserName=f"/DC=org/DC=example/CN=Robot {user} of {vo}",
            FQAN=f"/{vo}/Role={random.choice(ROLES)}/Capability=NULL",
            WallDuration=wall,
            CpuDuration=int(abs(wall) * cores * random.uniform(0.5, 0.98)),
            Processors=cores,
            NodeCount=1,
            StartTime=int(end.timestamp()) - abs(wall),
            EndTime=int(end.timestamp()),
            InfrastructureDescription="APEL-HTCONDOR",
            InfrastructureType="grid",
            MemoryReal=random.randint(100_000, 4_000_000) * cores,
            MemoryVirtual="NULL",
            ServiceLevelType=benchmark,
            ServiceLevel=level,
        )

    # Machines

    def machine(self, site: _Site, number: int, first: datetime, days: int) -> _Machine:
        random = self.random
        start = first - timedelta(days=random.uniform(0, 100))
        life = timedelta(days=random.choice((2, 20, 60, 200)) * random.uniform(0.5, 1.5))
        name = f"{random.getrandbits(32):08x}-{number:04x}-4000-8000-{random.getrandbits(48):012x}"
        cores = random.choice((1, 2, 4, 8, 16, 64))
        image = random.choice(("ubuntu-22.04", "ubuntu-24.04", "alma-9", "jupyter-3"))
        vo = random.choice(VOS[4:])
        return _Machine(site, name, vo, cores, start, max(start + life, first), random.uniform(0.1, 1), image)

    def months_before(self, machine: _Machine, first: datetime) -> Iterator[Timed]:
        month = machine.start.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        while (following := (month + 31 * _DAY).replace(day=1)) <= first:
            text = _machine(machine, min(following - timedelta(hours=1), machine.end))
            yield first, self.packed(machine.site, CLOUD, "APEL-cloud-message: v0.4", [text])
            month = following

    def cloud(self, site: _Site, midnight: datetime, machines: list[_Machine]) -> Iterator[Timed]:
        now = midnight + timedelta(hours=23)
        told = [each for each in machines if each.start < now and each.end > midnight - _DAY]
        if told:
            texts = [_machine(each, now) for each in told]
            yield now, self.packed(site, CLOUD, "APEL-cloud-message: v0.4", texts)
            yield now, self.sealed(site, CLOUD, _addresses(told, now))

    # Storage

    def storage(self, site: _Site, midnight: datetime) -> str:
        host = f"se01.{site.domain}"
        used = [(place + 1) * 10**13 + self.random.randint(0, 10**12) for place in range(5)]
        records = [_storage(site, host, VOS[place], midnight, amount) for place, amount in enumerate(used)]
        space = 'xmlns:sr="http://eu-emi.eu/namespaces/2011/02/storagerecord"'
        return f"<sr:StorageUsageRecords {space}>{''.join(records)}</sr:StorageUsageRecords>\n"

    # Messages

    def packed(self, site: _Site, topic: str, first: str, records: list[str]) -> Sample:
        return self.sealed(site, topic, f"{first}\n" + "".join(f"{each}%%\n" for each in records))

    def sealed(self, site: _Site, topic: str, text: str) -> Sample:
        data = text.encode()
        number, secret = self.random.getrandbits(32), self.random.random() < self.encrypted
        if self.signed:
            data = site.sender.signed(data)
        if self.signed and secret:
            data = self.senders.encrypted(data)
        return Sample(topic, data, {"empaid": f"{number:08x}/{number:014x}"})


def _spoilt(sample: Sample, chance: Random) -> bytes:
    """Return the payload of an altered, truncated, or invalid message."""
    data = sample.data
    ways = (b"", b"hello\n", data[: len(data) // 3], data.replace(b"Duration: ", b"Duration: 9"))
    return chance.choice(ways if data.startswith(b"MIME") else ways[:2])


def _sync(site: _Site, month: str, count: int) -> str:
    year, number = map(int, month.split("-"))
    return _record(Site=site.name, SubmitHost=site.host, NumberOfJobs=count, Month=number, Year=year)


def _machine(machine: _Machine, now: datetime) -> str:
    ended = machine.end <= now
    wall = int((min(now, machine.end) - machine.start).total_seconds())
    return _record(
        RecordCreateTime=int(now.timestamp()),
        VMUUID=machine.name,
        SiteName=machine.site.name,
        CloudComputeService=f"cloud.{machine.site.domain}",
        MachineName=f"vm-{machine.name[:8]}",
        LocalUserId=f"user-{machine.name[0]}",
        GlobalUserName=f"user-{machine.name[0]}@example.org",
        FQAN=machine.vo,
        Status="completed" if ended else "started",
        StartTime=int(machine.start.timestamp()),
        EndTime=int(machine.end.timestamp()) if ended else 0,
        SuspendDuration=0,
        WallDuration=wall,
        CpuDuration=wall * machine.cores,
        CpuCount=machine.cores,
        NetworkType="NULL",
        NetworkInbound=int(wall * machine.load * 10),
        NetworkOutbound=int(wall * machine.load * 3),
        PublicIPCount=1,
        Memory=machine.cores * 4096,
        Disk=machine.cores * 10,
        StorageRecordId="",
        ImageId=machine.image,
        CloudType="caso/5.2.2 (OpenStack)",
    )


def _storage(site: _Site, host: str, vo: str, midnight: datetime, used: int) -> str:
    created, name = _iso(midnight + _DAY), f"{host}-{midnight:%Y%m%d}-{vo}"
    group = _xml("Group", vo) + _xml("GroupAttribute", f"/{vo}", attributeType="subgroup")
    parts = (
        _xml("RecordIdentity", "", createTime=created, recordId=name),
        _xml("StorageSystem", host),
        _xml("Site", site.name),
        _xml("StorageMedia", "tape" if vo == "atlas" else "disk"),
        _xml("FileCount", used // 10**9),
        _xml("SubjectIdentity", group),
        _xml("StartTime", _iso(midnight)),
        _xml("EndTime", _iso(midnight + timedelta(hours=23, minutes=45))),
        _xml("ResourceCapacityUsed", used),
        _xml("LogicalCapacityUsed", used * 9 // 10),
    )
    return _xml("StorageUsageRecord", "".join(parts))


def _addresses(machines: list[_Machine], now: datetime) -> str:
    counted = Counter((each.site.name, each.vo) for each in machines)
    records: list[Mapping[str, object]] = [
        {
            "SiteName": site,
            "CloudType": "caso/5.2.2 (OpenStack)",
            "uuid": f"{site}-{vo}-{now:%Y%m%d}",
            "FQAN": vo,
            "IPVersion": 4,
            "IPCount": count,
            "MeasurementTime": int(now.timestamp()),
        }
        for (site, vo), count in counted.items()
    ]
    return json.dumps({"Type": "APEL Public IP message", "Version": "0.2", "UsageRecords": records})


def _record(**pairs: object) -> str:
    return "".join(f"{key}: {value}\n" for key, value in pairs.items())


def _xml(name: str, content: object, **attributes: str) -> str:
    said = "".join(f' sr:{key}="{value}"' for key, value in attributes.items())
    return f"<sr:{name}{said}>{content}</sr:{name}>"


def _iso(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
