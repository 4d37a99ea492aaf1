"""CMDB as JSON: a list of typed items (provider, service, tenant, flavor, image), or an object with only `images`."""

from typing import Any, Final

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.cloud.description import Capacity, Description, Endpoint, Flavour, Image, Share
from ams.pipeline.jobs.cloud.reading import distinct, joined, named, read
from ams.pipeline.jobs.fields import Record, an_object, needed, objects, text, total, whole

ENDPOINT: Final = named(Endpoint, "id=id url=endpoint interface=service_type")
SHARE: Final = named(Share, "id=tenant_id vo=user_group project=tenant_name")
IMAGE: Final = named(Image, "id=image_id platform=architecture marketplace=image_marketplace_id")
FLAVOUR: Final = named(Flavour, "id=flavor_id cpus=num_vcpus ram_mb=ram disk_gb=disk accelerators=num_gpus")


def described(value: Any) -> Description:
    """Read a description; raises `Broken`, naming the item and the field."""
    items = _items(value)
    vos = {needed(each, "tenant_id"): needed(each, "user_group") for each in items.get("tenant", [])}
    services = items.get("service", [])
    return Description(
        shape="cmdb-json",
        site=next((text(each, "name") for each in items.get("provider", [])), None),
        capacity=_capacity(services),
        endpoints=tuple(Endpoint(**read(each, ENDPOINT)) for each in services),
        shares=tuple(Share(**read(each, SHARE)) for each in items.get("tenant", [])),
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
    version = item.get("version")  # some write it as a number
    version = str(version) if isinstance(version, int | float) else text(item, "version")
    system = joined(text(item, "distribution") or text(item, "type"), version)
    return Image(**read(item, IMAGE), name=text(item, "image_name") or name, os=system, vos=vos)


def _flavour(name: str, item: Record, vos: tuple[str, ...]) -> Flavour:
    return Flavour(**read(item, FLAVOUR), name=text(item, "flavor_name") or name, vos=vos)


def _capacity(services: list[Record]) -> Capacity:
    told = [an_object(service.get("properties") or {}, "properties") for service in services]
    cores, ram = (total((whole(each, name) for each in told), name) for name in ("num_cpus", "mem_total"))
    return Capacity(cores=cores, ram_mb=ram)
