"""What a site's description of its cloud says, whichever of the three shapes it comes in."""

import msgspec


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a cloud is spoken to."""

    id: str
    url: str | None = None
    interface: str | None = None
    """Such as `org.openstack.nova`."""
    interface_version: str | None = None
    implementation: str | None = None
    implementation_version: str | None = None
    authentication: str | None = None
    health: str | None = None
    serving: str | None = None


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What a VO (virtual organisation) may use at a site."""

    id: str
    vo: str
    project: str | None = None
    """The site's own name or id of the place its members work in."""
    max_instances: int | None = None
    instances: int | None = None
    """How many there are now, running or not."""
    max_cpus: int | None = None
    """Of one instance."""
    max_ram_mb: int | None = None
    """Of one instance."""


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """A system that instances can be started with."""

    id: str
    name: str
    version: str | None = None
    os: str | None = None
    platform: str | None = None
    marketplace: str | None = None
    """Where it is known to the federation: a URL or the name of a registry's entry."""
    vos: tuple[str, ...] = ()


class Flavour(msgspec.Struct, frozen=True, kw_only=True):
    """A size that instances can have."""

    id: str
    name: str
    cpus: int | None = None
    ram_mb: int | None = None
    disk_gb: int | None = None
    accelerators: int | None = None
    vos: tuple[str, ...] = ()


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is in all."""

    cores: int | None = None
    ram_mb: int | None = None
    storage_gb: int | None = None


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """One message: all that a site says of its cloud at a time."""

    shape: str
    """`glue2-ldif`, `glue21-json` or `cmdb-json`."""
    site: str | None = None
    """What the description calls its site; the topic has the name that counts."""
    capacity: Capacity = Capacity()
    endpoints: tuple[Endpoint, ...] = ()
    shares: tuple[Share, ...] = ()
    images: tuple[Image, ...] = ()
    flavours: tuple[Flavour, ...] = ()
