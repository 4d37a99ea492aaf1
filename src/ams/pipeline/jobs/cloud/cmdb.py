"""CMDB as JSON: a list of typed items (provider, service, tenant, flavor, image), or an object with only `images`."""

from collections.abc import Iterator
from typing import Any, Final

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.fields import Record, an_object, join, names, needed, objects, read, text, total, whole

ENDPOINT: Final = names(needed="id=id", text="url=endpoint interface=service_type")
SHARE: Final = names(needed="id=tenant_id vo=user_group", text="project=tenant_name")
IMAGE: Final = names(needed="id=image_id", text="platform=architecture marketplace=image_marketplace_id")
FLAVOUR: Final = names(needed="id=flavor_id", whole="cpus=num_vcpus ram_mb=ram disk_gb=disk accelerators=num_gpus")


def described(value: Any) -> Record:
    """Read a description; raises `Broken`, naming the item and the field."""
    items = _items(value)
    vos = {needed(each, "tenant_id"): needed(each, "user_group") for each in items.get("tenant", [])}
    services = items.get("service", [])
    told = [an_object(service.get("properties") or {}, "properties") for service in services]
    cores, ram = (total((whole(each, name) for each in told), name) for name in ("num_cpus", "mem_total"))
    return {
        "shape": "cmdb-json",
        "site": next((text(each, "name") for each in items.get("provider", [])), None),
        "capacity": {"cores": cores, "ram_mb": ram},
        "endpoints": [read(each, ENDPOINT) for each in services],
        "shares": [read(each, SHARE) for each in items.get("tenant", [])],
        "images": [_image(*each) for each in _merged(items.get("image", []), "image_id", vos)],
        "flavours": [
            {**read(item, FLAVOUR), "name": text(item, "flavor_name") or item["flavor_id"], "vos": users}
            for item, users in _merged(items.get("flavor", []), "flavor_id", vos)
        ],
    }


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


def _merged(items: list[Record], key: str, vos: dict[str, str]) -> Iterator[tuple[Record, list[str]]]:
    """Give the first item of each id, which stands there once for each tenant, and the VOs of all."""
    alike: dict[str, list[Record]] = {}
    for item in items:
        alike.setdefault(needed(item, key), []).append(item)
    for same in alike.values():
        users = {vos.get(text(item, "tenant_id") or "") or text(item, "tenant_name") for item in same}
        yield same[0], sorted(filter(None, users))


def _image(item: Record, vos: list[str]) -> Record:
    version = item.get("version")  # some write it as a number
    version = str(version) if isinstance(version, int | float) else text(item, "version")
    system = join(" ", text(item, "distribution") or text(item, "type"), version)
    return {**read(item, IMAGE), "name": text(item, "image_name") or item["image_id"], "os": system, "vos": vos}
