"""CMDB as JSON: a list of typed items (provider, service, tenant, flavor, image), or an object with only `images`."""

from typing import Any

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.cloud.description import Capacity, Description, Endpoint, Flavour, Image, Share, distinct
from ams.pipeline.jobs.fields import Record, an_object, needed, objects, text, total, whole


def described(value: Any) -> Description:
    """Read a description; raises `Broken`, naming the item and the field."""
    items = _items(value)
    vos = {needed(each, "tenant_id"): needed(each, "user_group") for each in items.get("tenant", [])}
    services = items.get("service", [])
    return Description(
        shape="cmdb-json",
        site=next((text(each, "name") for each in items.get("provider", [])), None),
        capacity=_capacity(services),
        endpoints=tuple(_endpoint(each) for each in services),
        shares=tuple(_share(each) for each in items.get("tenant", [])),
        images=_merged(items.get("image", []), "image_id", vos, _image),
        flavours=_merged(items.get("flavor", []), "flavor_id", vos, _flavour),
    )


def _items(value: Any) -> dict[str, list[Record]]:
    """Return the data of the items by their type."""
    if isinstance(value, dict):
        return {"image": objects(value, "images")}
    found: dict[str, list[Record]] = {}
    for place, item in enumerate(value):
        item = an_object(item, f"item {place}")
        found.setdefault(needed(item, "type"), []).append(an_object(item.get("data"), f"data of item {place}"))
    if not found:
        raise Broken("a list without items")
    return found


def _merged(items: list[Record], key: str, vos: dict[str, str], make: Any) -> tuple[Any, ...]:
    """Make one value of the items with the same id, which stand there once for each tenant."""
    users: dict[str, set[str]] = {}
    first: dict[str, Record] = {}
    for item in items:
        name = needed(item, key)
        first.setdefault(name, item)
        vo = vos.get(text(item, "tenant_id") or "") or text(item, "tenant_name")
        users.setdefault(name, set()).update([vo] if vo else [])
    return tuple(make(name, item, distinct(users[name])) for name, item in first.items())


def _image(name: str, item: Record, vos: tuple[str, ...]) -> Image:
    system = (text(item, "distribution") or text(item, "type"), _version(item))
    return Image(
        id=name,
        name=text(item, "image_name") or name,
        os=" ".join(filter(None, system)) or None,
        platform=text(item, "architecture"),
        marketplace=text(item, "image_marketplace_id"),
        vos=vos,
    )


def _version(item: Record) -> str | None:
    """Return the version of a system, which some write as a number."""
    version = item.get("version")
    return str(version) if isinstance(version, int | float) else text(item, "version")


def _flavour(name: str, item: Record, vos: tuple[str, ...]) -> Flavour:
    return Flavour(
        id=name,
        name=text(item, "flavor_name") or name,
        cpus=whole(item, "num_vcpus"),
        ram_mb=whole(item, "ram"),
        disk_gb=whole(item, "disk"),
        accelerators=whole(item, "num_gpus"),
        vos=vos,
    )


def _share(tenant: Record) -> Share:
    return Share(id=needed(tenant, "tenant_id"), vo=needed(tenant, "user_group"), project=text(tenant, "tenant_name"))


def _endpoint(service: Record) -> Endpoint:
    return Endpoint(id=needed(service, "id"), url=text(service, "endpoint"), interface=text(service, "service_type"))


def _capacity(services: list[Record]) -> Capacity:
    told = [an_object(service.get("properties") or {}, "properties") for service in services]
    cores, ram = (total((whole(each, name) for each in told), name) for name in ("num_cpus", "mem_total"))
    return Capacity(cores=cores, ram_mb=ram)
