"""GLUE 2.1 as JSON: an object of lists of items that point at each other by their ids."""

from ams.pipeline.jobs.cloud.description import Capacity, Description, Endpoint, Flavour, Image, Share, distinct
from ams.pipeline.jobs.fields import Record, a_list, an_object, needed, objects, text, total, whole

LISTS = (
    "CloudComputingService",
    "CloudComputingManager",
    "CloudComputingEndpoint",
    "Share",
    "MappingPolicy",
    "CloudComputingImage",
    "CloudComputingInstanceType",
    "CloudComputingVirtualAccelerator",
)
"""The lists of which at least one makes an object a description."""

_RULE = "VO:"
_DOMAIN = "PolicyUserDomain"


def described(value: Record) -> Description:
    """Read a description; raises `Broken`, naming the item and the field."""
    vos = _vos_of_shares(value)
    accelerators = {needed(item, "ID"): whole(item, "Number") for item in objects(value, LISTS[7])}
    return Description(
        shape="glue21-json",
        site=_site(value),
        capacity=_capacity(value),
        endpoints=tuple(_endpoint(item) for item in objects(value, LISTS[2])),
        shares=tuple(_share(item, vo) for item in objects(value, LISTS[3]) for vo in vos.get(needed(item, "ID"), ())),
        images=tuple(_image(item, vos) for item in objects(value, LISTS[5])),
        flavours=tuple(_flavour(item, vos, accelerators) for item in objects(value, LISTS[6])),
    )


def _vos_of_shares(value: Record) -> dict[str, tuple[str, ...]]:
    """Return the VOs of each share: a mapping policy says which share it is of, and which VO may use it."""
    found: dict[str, set[str]] = {}
    for policy in objects(value, "MappingPolicy"):
        rules = [rule.removeprefix(_RULE) for rule in _names(policy, "Rule") if rule.startswith(_RULE)]
        for share in _associated(policy, "Share"):
            found.setdefault(share, set()).update(rules or _associated(policy, _DOMAIN))
    return {share: distinct(vos) for share, vos in found.items()}


def _site(value: Record) -> str | None:
    for service in objects(value, LISTS[0]):
        named = text(_other(service), "site_name") or next(iter(_associated(service, "AdminDomain")), None)
        if named:
            return named
    return None


def _capacity(value: Record) -> Capacity:
    managers = objects(value, LISTS[1])
    cores, ram = (total((whole(item, name) for item in managers), name) for name in ("TotalCores", "TotalRAM"))
    return Capacity(cores=cores, ram_mb=ram)


def _endpoint(item: Record) -> Endpoint:
    return Endpoint(
        id=needed(item, "ID"),
        url=text(item, "URL"),
        interface=text(item, "InterfaceName"),
        interface_version=text(item, "InterfaceVersion"),
        implementation=text(item, "ImplementationName"),
        implementation_version=text(item, "ImplementationVersion"),
        authentication=text(item, "Authentication"),
        health=text(item, "HealthState"),
        serving=text(item, "ServingState"),
    )


def _share(item: Record, vo: str) -> Share:
    return Share(
        id=needed(item, "ID"),
        vo=vo,
        project=text(item, "ProjectID"),
        max_instances=whole(item, "MaxVM"),
        instances=whole(item, "TotalVM"),
        max_cpus=whole(item, "InstanceMaxCPU"),
        max_ram_mb=whole(item, "InstanceMaxRAM"),
    )


def _image(item: Record, vos: dict[str, tuple[str, ...]]) -> Image:
    return Image(
        id=needed(item, "ID"),
        name=text(item, "Name") or needed(item, "ID"),
        version=text(_other(item), "eu.egi.cloud.tag"),
        os=" ".join(filter(None, (text(item, "OSName"), text(item, "OSVersion")))) or None,
        platform=text(item, "OSPlatform"),
        marketplace=text(item, "MarketplaceURL") or text(item, "MarketPlaceURL"),
        vos=_vos(item, vos),
    )


def _flavour(item: Record, vos: dict[str, tuple[str, ...]], accelerators: dict[str, int | None]) -> Flavour:
    own = [accelerators.get(name) for name in _associated(item, LISTS[7])]
    return Flavour(
        id=needed(item, "ID"),
        name=text(item, "Name") or needed(item, "ID"),
        cpus=whole(item, "CPU"),
        ram_mb=whole(item, "RAM"),
        disk_gb=whole(item, "Disk"),
        accelerators=total(own, "Number"),
        vos=_vos(item, vos),
    )


def _vos(item: Record, vos: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the VOs that may use an item: those of its shares."""
    return distinct(vo for share in _associated(item, "Share") for vo in vos.get(share, ()))


def _associated(item: Record, kind: str) -> list[str]:
    """Return the ids of the items of a kind that an item points at; one alone may stand without its list."""
    return _names(an_object(item.get("Associations") or {}, "Associations"), kind)


def _names(item: Record, name: str) -> list[str]:
    values = [item[name]] if isinstance(item.get(name), str) else a_list(item, name)
    return [needed({name: value}, name) for value in values]


def _other(item: Record) -> Record:
    other = item.get("OtherInfo")
    return other if isinstance(other, dict) else {}
