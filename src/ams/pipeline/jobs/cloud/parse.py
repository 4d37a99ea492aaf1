"""The three shapes of a cloud's description: GLUE 2 as LDIF (`ldif`), GLUE 2.1 as JSON, CMDB as JSON.

GLUE 2.1 is an object of lists of items that point at each other by their ids. CMDB is a list of typed items (provider,
service, tenant, flavor, image), or an object with only `images`.

A message is read whole or not at all: of a description that is half right, the site's older one stands.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from ams.pipeline.errors import Broken
from ams.pipeline.jobs import fields
from ams.pipeline.jobs.cloud import ldif
from ams.pipeline.jobs.cloud.ldif import Vos, vos_by_share
from ams.pipeline.jobs.fields import Names, Record, join, names, names_in, needed, objects, read, text, total, whole


def parse(data: bytes, attributes: Mapping[str, str]) -> Iterable[Record]:
    """Return the message's one description (`job.DESCRIPTION`); absent values are null."""
    return [description(data)]


def description(data: bytes) -> Record:
    """Read a description. Raises `Broken` if invalid or empty: it would clear the site's page."""
    found = _read_any_format(fields.in_utf8(data))
    lists = [found[name] for name in ("endpoints", "shares", "images", "flavours")]
    if not any(lists) and not any(value is not None for value in found["capacity"].values()):
        raise Broken("it describes nothing: no endpoint, share, image or size, and no capacity")
    others = Counter(name[: fields.MAX_NAME] for name in found["not_taken"]).most_common(fields.MAX_NAMES)
    return {**found, "not_taken": [{"name": name, "times": times} for name, times in others]}


def _read_any_format(data: bytes) -> Record:
    start = data.lstrip()[:1]
    if start not in (b"{", b"["):
        return ldif.description(data)
    value = fields.json_value(data)
    if isinstance(value, dict) and any(name in value for name in LISTS):
        return _glue21(value)
    if isinstance(value, list) or "images" in value:
        return _cmdb(value)
    raise Broken("JSON that is neither GLUE 2.1 nor CMDB")


ACCELERATORS: Final = "CloudComputingVirtualAccelerator"
LISTS: Final = (
    *("CloudComputingService", "CloudComputingManager", "CloudComputingEndpoint", "Share", "MappingPolicy"),
    *("CloudComputingImage", "CloudComputingInstanceType", ACCELERATORS),
)

ENDPOINT = names(
    needed="id=ID",
    text="url=URL interface=InterfaceName interface_version=InterfaceVersion implementation=ImplementationName"
    " implementation_version=ImplementationVersion authentication=Authentication health=HealthState"
    " serving=ServingState",
)
SHARE = names(
    needed="id=ID",
    text="project=ProjectID",
    whole="max_instances=MaxVM instances=TotalVM max_cpus=InstanceMaxCPU max_ram_mb=InstanceMaxRAM",
)
IMAGE = names(needed="id=ID", text="name=Name|ID platform=OSPlatform marketplace=MarketplaceURL|MarketPlaceURL")
FLAVOUR = names(needed="id=ID", text="name=Name|ID", whole="cpus=CPU ram_mb=RAM disk_gb=Disk")


def _paths(item: str, table: Names, more: str = "") -> Iterator[str]:
    return (f"{item}.{name}" for name in (*names_in(table), *more.split()))


TAKEN: Final = frozenset(  # paths of GLUE 2.1 that are read: the item, and the field, with dots into objects
    (
        *_paths("CloudComputingService", {}, "OtherInfo.site_name Associations.AdminDomain"),
        *_paths("CloudComputingManager", {}, "TotalCores TotalRAM"),
        *_paths("CloudComputingEndpoint", ENDPOINT),
        *_paths("Share", SHARE),
        *_paths("MappingPolicy", {}, "Rule Associations.PolicyUserDomain Associations.Share"),
        *_paths("CloudComputingImage", IMAGE, "OtherInfo.eu.egi.cloud.tag OSName OSVersion Associations.Share"),
        *_paths("CloudComputingInstanceType", FLAVOUR, f"Associations.Share Associations.{ACCELERATORS}"),
        *_paths(ACCELERATORS, {}, "ID Number"),
    )
)


@cache
def _parents(paths: frozenset[str]) -> frozenset[str]:
    return frozenset(path[:at] for path in paths for at, each in enumerate(path) if each == ".")


def _unknown_paths(value: Any, known: frozenset[str], path: str = "") -> Iterator[str]:
    if path in known or value is None:
        return
    if len(path) >= fields.MAX_NAME:  # longer than all known paths; hostile messages must not fill the memory
        yield path[: fields.MAX_NAME]
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _unknown_paths(each, known, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for each in value:
            yield from _unknown_paths(each, known, path)
    elif path not in _parents(known):  # where an object should be, its reader refuses another value
        yield path


def _glue21(value: Record) -> Record:
    vos = vos_by_share(
        (share, _names(policy, "Rule"), _associations(policy, "PolicyUserDomain"))
        for policy in objects(value, "MappingPolicy")
        for share in _associations(policy, "Share")
    )
    accelerators = {needed(item, "ID"): whole(item, "Number") for item in objects(value, ACCELERATORS)}
    shares = ((item, vo) for item in objects(value, "Share") for vo in vos.get(needed(item, "ID"), ()))
    managers = objects(value, "CloudComputingManager")
    cores, ram = (total((whole(item, name) for item in managers), name) for name in ("TotalCores", "TotalRAM"))
    clouds = objects(value, "CloudComputingService")
    sites = (text(_other(each), "site_name") or next(iter(_associations(each, "AdminDomain")), None) for each in clouds)
    return {
        "shape": "glue21-json",
        "site": next(filter(None, sites), None),
        "capacity": {"cores": cores, "ram_mb": ram},
        "endpoints": [read(item, ENDPOINT) for item in objects(value, "CloudComputingEndpoint")],
        "shares": [{**read(item, SHARE), "vo": vo} for item, vo in shares],
        "images": [_image(item, vos) for item in objects(value, "CloudComputingImage")],
        "flavours": [_flavour(item, vos, accelerators) for item in objects(value, "CloudComputingInstanceType")],
        "not_taken": list(_unknown_paths(value, TAKEN)),
    }


def _image(item: Record, vos: Vos) -> Record:
    version, system = text(_other(item), "eu.egi.cloud.tag"), join(" ", text(item, "OSName"), text(item, "OSVersion"))
    return {**read(item, IMAGE), "version": version, "os": system, "vos": _vos(item, vos)}


def _flavour(item: Record, vos: Vos, accelerators: Mapping[str, int | None]) -> Record:
    own = total((accelerators.get(name) for name in _associations(item, ACCELERATORS)), "Number")
    return {**read(item, FLAVOUR), "accelerators": own, "vos": _vos(item, vos)}


def _vos(item: Record, vos: Vos) -> list[str]:
    return sorted({vo for share in _associations(item, "Share") for vo in vos.get(share, ())})


def _associations(item: Record, kind: str) -> list[str]:
    return _names(fields.an_object(item.get("Associations") or {}, "Associations"), kind)


def _names(item: Record, name: str) -> list[str]:
    values = [item[name]] if isinstance(item.get(name), str) else fields.a_list(item, name)
    return [needed({name: value}, name) for value in values]


def _other(item: Record) -> Record:
    other = item.get("OtherInfo")
    return other if isinstance(other, dict) else {}


CMDB_ENDPOINT = names(needed="id=id", text="url=endpoint interface=service_type")
CMDB_SHARE = names(needed="id=tenant_id vo=user_group", text="project=tenant_name")
CMDB_IMAGE = names(
    needed="id=image_id", text="name=image_name|image_id platform=architecture marketplace=image_marketplace_id"
)
CMDB_FLAVOUR = names(
    needed="id=flavor_id",
    text="name=flavor_name|flavor_id",
    whole="cpus=num_vcpus ram_mb=ram disk_gb=disk accelerators=num_gpus",
)
CMDB_TAKEN: Final = frozenset(  # paths of CMDB that are read: the type of the item, and the field of its data
    (
        *("provider.name", "service.properties.num_cpus", "service.properties.mem_total"),
        *_paths("service", CMDB_ENDPOINT),
        *_paths("tenant", CMDB_SHARE),
        *_paths("image", CMDB_IMAGE, "distribution type version tenant_id tenant_name"),
        *_paths("flavor", CMDB_FLAVOUR, "tenant_id tenant_name"),
    )
)


def _cmdb(value: Any) -> Record:
    items = _cmdb_items(value)
    around = [value] if isinstance(value, dict) else value
    others = [name for each in around for name in each if name not in ("type", "data", "images")]
    vos = {needed(each, "tenant_id"): needed(each, "user_group") for each in items.get("tenant", [])}
    services = items.get("service", [])
    told = [fields.an_object(service.get("properties") or {}, "properties") for service in services]
    cores, ram = (total((whole(each, name) for each in told), name) for name in ("num_cpus", "mem_total"))
    return {
        "shape": "cmdb-json",
        "site": next((text(each, "name") for each in items.get("provider", [])), None),
        "capacity": {"cores": cores, "ram_mb": ram},
        "endpoints": [read(each, CMDB_ENDPOINT) for each in services],
        "shares": [read(each, CMDB_SHARE) for each in items.get("tenant", [])],
        "images": [_cmdb_image(*each) for each in _merge_by_id(items.get("image", []), "image_id", vos)],
        "flavours": [
            {**read(item, CMDB_FLAVOUR), "vos": users}
            for item, users in _merge_by_id(items.get("flavor", []), "flavor_id", vos)
        ],
        "not_taken": [*others, *_unknown_paths(items, CMDB_TAKEN)],
    }


def _cmdb_items(value: Any) -> dict[str, list[Record]]:
    if isinstance(value, dict):
        return {"image": objects(value, "images")}
    found: dict[str, list[Record]] = {}
    for place, item in enumerate(value):
        item = fields.an_object(item, f"item {place}")
        found.setdefault(needed(item, "type"), []).append(fields.an_object(item.get("data"), f"data of item {place}"))
    if not found:
        raise Broken("a list without items")
    return found


def _merge_by_id(items: list[Record], key: str, vos: dict[str, str]) -> Iterator[tuple[Record, list[str]]]:
    """Yield the first item of each id (repeated per tenant), with the VOs of all its items."""
    for same in fields.group((needed(item, key), item) for item in items).values():
        users = {vos.get(text(item, "tenant_id") or "") or text(item, "tenant_name") for item in same}
        yield same[0], sorted(filter(None, users))


def _cmdb_image(item: Record, vos: list[str]) -> Record:
    version = item.get("version")  # some write it as a number
    version = str(version) if isinstance(version, int | float) else text(item, "version")
    system = join(" ", text(item, "distribution") or text(item, "type"), version)
    return {**read(item, CMDB_IMAGE), "os": system, "vos": vos}
