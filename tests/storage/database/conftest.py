from tests.storage.registry.conftest import clock, registry, url

__all__ = ["clock", "registry", "url"]
