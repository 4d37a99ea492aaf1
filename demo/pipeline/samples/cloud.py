"""A day of cloud information: every hour each site describes its cloud anew, in the shape its software has.

A third of the sites writes GLUE 2 as LDIF, a third GLUE 2.1 as JSON, a third CMDB. Images come and go from hour to
hour; some sites fall silent during the day. `images` says how large descriptions are: 15 images make 10 to 20 kB,
1,000 about a megabyte.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from random import Random
from typing import Any

from demo.pipeline.samples import Mishaps, Sample, Timed

VOS = ("vo.access.egi.eu", "ops", "biomed", "vo.example.org", "eosc-synergy.example.org")
SYSTEMS = (("ubuntu", "22.04"), ("ubuntu", "24.04"), ("centos", "7"), ("almalinux", "9"), ("debian", "12"))
FLAVOURS = (
    ("tiny", 1, 512, 1),
    ("small", 1, 2048, 20),
    ("medium", 2, 4096, 40),
    ("large", 4, 8192, 80),
    ("gpu", 8, 65536, 200),
)
"""Names, processors, memory in MB and disk in GB."""
SITES = 12


def topic(number: int) -> str:
    return f"SITE_{_name(number)}_ENDPOINT_{1234 + number}G0"


def _name(number: int) -> str:
    return f"CLOUD-{number:02d}"


TOPICS = tuple(topic(number) for number in range(SITES))
"""The topics of as many sites as `messages` has by itself."""


def messages(
    seed: int, day: date, *, sites: int = SITES, images: int = 15, hours: int = 24, mishaps: Mishaps | None = None
) -> Iterator[Sample]:
    """Yield the messages of a day in the order they are published in: one for each site and hour."""
    random = Random(seed)  # made-up data
    silent = {number: random.randrange(1, 12) for number in range(sites) if random.random() < 0.2}
    told = (
        timed
        for hour in range(hours)
        for number in range(sites)
        if hour < silent.get(number, hours)
        for timed in [_told(number, datetime.combine(day, time(), UTC) + timedelta(hours=hour), images, random)]
    )
    return (mishaps or Mishaps()).applied(told, random, lambda sample: _spoilt(sample, random))


@dataclass(frozen=True, slots=True)
class _Image:
    id: str
    name: str
    os: str
    version: str
    vo: str


@dataclass(frozen=True, slots=True)
class _Cloud:
    number: int
    at: datetime
    vos: tuple[str, ...]
    images: tuple[_Image, ...]

    @property
    def site(self) -> str:
        return _name(self.number)

    @property
    def url(self) -> str:
        return f"https://cloud.{self.site.lower()}.example:5000/v3"

    def share(self, vo: str) -> str:
        return f"{self.url}_share_{vo}"


def _told(number: int, hour: datetime, images: int, random: Random) -> Timed:
    at = hour + timedelta(minutes=number, seconds=random.randrange(60))
    vos = tuple(sorted({VOS[number % 5], VOS[(number + 2) % 5], "ops"}))
    there = tuple(_image(number, place, vos) for place in range(images) if random.random() < 0.95)
    cloud = _Cloud(number, at, vos, there)
    write = (_ldif, _glue21, _cmdb)[number % 3]
    return at, Sample(topic(number), write(cloud).encode())


def _image(number: int, place: int, vos: tuple[str, ...]) -> _Image:
    system, version = SYSTEMS[place % len(SYSTEMS)]
    identity = f"{number:08x}-0f93-48da-b0eb-{place:012x}"
    return _Image(identity, f"EGI {system} {version}, build {place}", system, version, vos[place % len(vos)])


def _ldif(cloud: _Cloud) -> str:
    tree = f"GLUE2GroupID=cloud,GLUE2DomainID={cloud.site},o=glue"
    service = f"{cloud.url}_cloud.compute"
    below = f"GLUE2ServiceID={service},{tree}"
    blocks = [
        _block("GLUE2GroupID", "cloud", tree.partition(",")[2], "GLUE2Group", {"GLUE2GroupID": "cloud"}),
        _block("GLUE2ServiceID", service, tree, "GLUE2Service GLUE2ComputingService", {
            "GLUE2ServiceAdminDomainForeignKey": cloud.site, "GLUE2ServiceID": service,
            "GLUE2ServiceQualityLevel": "production", "GLUE2ServiceType": "IaaS",
            "GLUE2ServiceCapability": "executionmanagement.dynamicvmdeploy"}),
        _block("GLUE2ManagerID", f"{service}_manager", below, "GLUE2Manager GLUE2ComputingManager", {
            "GLUE2ManagerProductName": "kvm", "GLUE2ManagerProductVersion": "2.5",
            "GLUE2ComputingManagerTotalLogicalCPUs": str(64 * (cloud.number + 1)),
            "GLUE2ComputingManagerWorkingAreaTotal": str(262144 * (cloud.number + 1))}),
        _block("GLUE2EndpointID", f"{cloud.url}_OpenStack_v3_oidc", below, "GLUE2Endpoint GLUE2ComputingEndpoint", {
            "GLUE2EndpointURL": cloud.url, "GLUE2EndpointInterfaceName": "org.openstack.nova",
            "GLUE2EndpointInterfaceVersion": "v2.1", "GLUE2EndpointTechnology": "webservice",
            "GLUE2EndpointImplementationName": "OpenStack Nova", "GLUE2EndpointImplementationVersion": "27.1",
            "GLUE2EndpointServingState": "production", "GLUE2EndpointHealthState": "ok",
            "GLUE2EntityOtherInfo": "Authn=oidc"}),
        *(_block("GLUE2ShareID", cloud.share(vo), below, "GLUE2Share GLUE2ComputingShare", {
            "GLUE2ShareID": cloud.share(vo), "GLUE2EntityOtherInfo": f"project_name={vo}",
            "GLUE2ComputingShareTotalJobs": "7"}) for vo in cloud.vos),
        *(_block("GLUE2PolicyID", f"{cloud.share(vo)}_policy", below, "GLUE2Policy GLUE2MappingPolicy", {
            "GLUE2PolicyRule": f"VO:{vo}", "GLUE2MappingPolicyShareForeignKey": cloud.share(vo)}) for vo in cloud.vos),
        *(_block("GLUE2ResourceID", f"{name}_{service}", below, "GLUE2Resource GLUE2ExecutionEnvironment", {
            "GLUE2EntityName": name, "GLUE2ExecutionEnvironmentPlatform": "amd64",
            "GLUE2ExecutionEnvironmentMainMemorySize": str(ram), "GLUE2ExecutionEnvironmentLogicalCPUs": str(cpus),
            "GLUE2EntityOtherInfo": f"disk={disk}"}) for name, cpus, ram, disk in FLAVOURS),
        *(_block("GLUE2ApplicationEnvironmentID", each.id, below, "GLUE2ApplicationEnvironment", {
            "GLUE2ApplicationEnvironmentAppName": each.name, "GLUE2ApplicationEnvironmentAppVersion": each.version,
            "GLUE2ApplicationEnvironmentRepository": _marketplace(each), "GLUE2EntityName": each.id,
            "GLUE2ApplicationEnvironmentDescription": f"{each.name} on linux {each.os} amd64"})
          for each in cloud.images),
    ]  # fmt: skip
    return "\n\n".join(blocks) + "\n"


def _block(name: str, identity: str, tree: str, kinds: str, values: dict[str, str]) -> str:
    kinds = f"GLUE2Entity {kinds}"
    lines = [f"dn: {name}={identity},{tree}", *(f"objectClass: {kind}" for kind in kinds.split())]
    return "\n".join([*lines, *(f"{key}: {value}" for key, value in values.items())])


def _glue21(cloud: _Cloud) -> str:
    service, endpoint = f"{cloud.url}_cloud.compute", f"{cloud.url}_OpenStack_v3_oidc"
    shares = {vo: cloud.share(vo) for vo in cloud.vos}
    item = _Items(cloud.at)
    value = {
        "CloudComputingService": [item(service, {"AdminDomain": [cloud.site]}, Name=f"Cloud at {cloud.site}",
            OtherInfo={"gocdb_id": f"{1234 + cloud.number}G0", "site_name": cloud.site}, Type="org.cloud.iaas",
            QualityLevel="production", Capability=["executionmanagement.dynamicvmdeploy"])],
        "CloudComputingManager": [item(f"{service}_manager", {"CloudComputingService": [service]},
            InstanceMaxCPU=8, InstanceMaxRAM=65536)],
        "CloudComputingEndpoint": [item(endpoint, {"CloudComputingService": [service]}, URL=cloud.url,
            InterfaceName="org.openstack.nova", InterfaceVersion="2.0", HealthState="ok", ServingState="production",
            Technology="webservice", Implementor="OpenStack Foundation", ImplementationName="OpenStack Nova",
            ImplementationVersion="2.96", Authentication="oidc", TrustedCA=[])],
        "Share": [item(share, {"CloudComputingEndpoint": [endpoint]}, Name=f"{vo} share", ProjectID=f"{vo}-project",
            InstanceMaxCPU=8, InstanceMaxRAM=65536, TotalVM=7, RunningVM=5, MaxVM=40) for vo, share in shares.items()],
        "MappingPolicy": [item(f"{share}_Policy", {"Share": [share], "PolicyUserDomain": [vo]}, Rule=[f"VO:{vo}"],
            Scheme="org.glite.standard") for vo, share in shares.items()],
        "AccessPolicy": [item(f"{endpoint}_policy", {"CloudComputingEndpoint": [endpoint]},
            Rule=[f"VO:{vo}" for vo in cloud.vos], Scheme="org.glite.standard")],
        "CloudComputingImage": [item(each.id, {"Share": [shares[each.vo]], "CloudComputingEndpoint": [endpoint]},
            Name=each.name, MarketplaceURL=_marketplace(each), OSPlatform="x86_64", OSName=each.os,
            OSVersion=each.version, Description=f"{each.name} on linux {each.os}", AccessInfo="none")
            for each in cloud.images],
        "CloudComputingInstanceType": [item(name, {"Share": list(shares.values()), **_accelerated(name)}, Name=name,
            Platform="amd64", CPU=cpus, RAM=ram, Disk=disk, NetworkIn="UNKNOWN", NetworkOut=True)
            for name, cpus, ram, disk in FLAVOURS],
        "CloudComputingVirtualAccelerator": [item("gpu_accelerator", {}, Type="GPU", Number=2, Model="A100")],
    }  # fmt: skip
    return json.dumps(value)


def _accelerated(name: str) -> dict[str, list[str]]:
    return {"CloudComputingVirtualAccelerator": ["gpu_accelerator"]} if name == "gpu" else {}


@dataclass(frozen=True, slots=True)
class _Items:
    """Makes items of GLUE 2.1, which have all some fields in common."""

    at: datetime

    def __call__(self, identity: str, associations: dict[str, list[str]], **values: Any) -> dict[str, Any]:
        common = {"ID": identity, "CreationTime": self.at.isoformat(), "Validity": 43200, "Associations": associations}
        return {**common, **values}


def _cmdb(cloud: _Cloud) -> str:
    service = cloud.url
    tenants = {vo: f"{vo}-project" for vo in cloud.vos}
    items: list[tuple[str, dict[str, Any]]] = [
        ("provider", {"name": cloud.site, "country_code": "EX", "is_public": True}),
        ("service", {"id": service, "provider_id": cloud.site, "endpoint": service, "sitename": cloud.site,
            "service_type": "org.openstack.nova", "type": "compute"}),
        *(("tenant", {"tenant_id": tenant, "tenant_name": vo, "user_group": vo, "service": service})
          for vo, tenant in tenants.items()),
        *(("flavor", {"flavor_id": name, "flavor_name": name, "num_vcpus": cpus, "ram": ram, "disk": disk,
            "num_gpus": 2 if name == "gpu" else 0, "tenant_id": tenant, "tenant_name": vo, "service": service})
          for vo, tenant in tenants.items() for name, cpus, ram, disk in FLAVOURS),
        *(("image", {"image_id": each.id, "image_name": each.name, "image_description": f"{each.name} on {each.os}",
            "image_marketplace_id": _marketplace(each), "architecture": "x86_64", "type": "linux",
            "distribution": each.os, "version": each.version, "gpu_driver": False, "cuda_support": False,
            "tenant_id": tenants[each.vo], "tenant_name": each.vo, "service": service}) for each in cloud.images),
    ]  # fmt: skip
    return json.dumps([{"type": kind, "data": data} for kind, data in items])


def _marketplace(image: _Image) -> str:
    return f"registry.example.org/egi_vm_images/{image.os}:{image.version}"


def _spoilt(sample: Sample, random: Random) -> bytes:
    damages = (
        sample.data[: len(sample.data) // 2].rstrip(b"\n") + b"\nno colon in this line",
        b" ",
        sample.data.replace(b"GLUE2ApplicationEnvironmentID=", b"X=").replace(b'"ID"', b'"Id"').replace(b"_id", b"_ie"),
        b"\xff\xfe\x00 not text",
        b'{"hello": "world"}',
    )
    return random.choice(damages)
