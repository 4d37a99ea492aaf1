"""GLUE 2.1 as JSON: an object of lists of items that point at each other by their ids."""

from collections.abc import Mapping
from typing import Final

from ams.pipeline.jobs.cloud.reading import Vos, by_share
from ams.pipeline.jobs.fields import Record, a_list, an_object, join, names, needed, objects, read, text, total, whole

ACCELERATORS: Final = "CloudComputingVirtualAccelerator"
LISTS: Final = (
    *("CloudComputingService", "CloudComputingManager", "CloudComputingEndpoint", "Share", "MappingPolicy"),
    *("CloudComputingImage", "CloudComputingInstanceType", ACCELERATORS),
)
"""The lists of which at least one makes an object a description."""

ENDPOINT: Final = names(
    needed="id=ID",
    text="url=URL interface=InterfaceName interface_version=InterfaceVersion implementation=ImplementationName"
    " implementation_version=ImplementationVersion authentication=Authentication health=HealthState"
    " serving=ServingState",
)
SHARE: Final = names(
    needed="id=ID",
    text="project=ProjectID",
    whole="max_instances=MaxVM instances=TotalVM max_cpus=InstanceMaxCPU max_ram_mb=InstanceMaxRAM",
)
FLAVOUR: Final = names(needed="id=ID", whole="cpus=CPU ram_mb=RAM disk_gb=Disk")


def described(value: Record) -> Record:
    """Read a description; raises `Broken`, naming the item and the field."""
    vos = by_share(
        (share, _names(policy, "Rule"), _associated(policy, "PolicyUserDomain"))
        for policy in objects(value, "MappingPolicy")
        for share in _associated(policy, "Share")
    )
    accelerators = {needed(item, "ID"): whole(item, "Number") for item in objects(value, ACCELERATORS)}
    shares = ((item, vo) for item in objects(value, "Share") for vo in vos.get(needed(item, "ID"), ()))
    managers = objects(value, "CloudComputingManager")
    cores, ram = (total((whole(item, name) for item in managers), name) for name in ("TotalCores", "TotalRAM"))
    return {
        "shape": "glue21-json",
        "site": _site(objects(value, "CloudComputingService")),
        "capacity": {"cores": cores, "ram_mb": ram},
        "endpoints": [read(item, ENDPOINT) for item in objects(value, "CloudComputingEndpoint")],
        "shares": [{**read(item, SHARE), "vo": vo} for item, vo in shares],
        "images": [_image(item, vos) for item in objects(value, "CloudComputingImage")],
        "flavours": [_flavour(item, vos, accelerators) for item in objects(value, "CloudComputingInstanceType")],
    }


def _site(services: list[Record]) -> str | None:
    names = (text(_other(each), "site_name") or next(iter(_associated(each, "AdminDomain")), None) for each in services)
    return next(filter(None, names), None)


def _image(item: Record, vos: Vos) -> Record:
    return {
        "id": needed(item, "ID"),
        "name": text(item, "Name") or needed(item, "ID"),
        "version": text(_other(item), "eu.egi.cloud.tag"),
        "os": join(" ", text(item, "OSName"), text(item, "OSVersion")),
        "platform": text(item, "OSPlatform"),
        "marketplace": text(item, "MarketplaceURL") or text(item, "MarketPlaceURL"),
        "vos": _vos(item, vos),
    }


def _flavour(item: Record, vos: Vos, accelerators: Mapping[str, int | None]) -> Record:
    own = total((accelerators.get(name) for name in _associated(item, ACCELERATORS)), "Number")
    name = text(item, "Name") or needed(item, "ID")
    return {**read(item, FLAVOUR), "name": name, "accelerators": own, "vos": _vos(item, vos)}


def _vos(item: Record, vos: Vos) -> list[str]:
    """Return the VOs that may use an item: those of its shares."""
    return sorted({vo for share in _associated(item, "Share") for vo in vos.get(share, ())})


def _associated(item: Record, kind: str) -> list[str]:
    """Return the ids of the items of a kind that an item points at; one alone may stand without its list."""
    return _names(an_object(item.get("Associations") or {}, "Associations"), kind)


def _names(item: Record, name: str) -> list[str]:
    values = [item[name]] if isinstance(item.get(name), str) else a_list(item, name)
    return [needed({name: value}, name) for value in values]


def _other(item: Record) -> Record:
    other = item.get("OtherInfo")
    return other if isinstance(other, dict) else {}
