from tests.registry.conftest import clock, registry, url

__all__ = ["clock", "registry", "url"]
