"""Outgoing HTTP requests to hosts that users configure.

- address_guard: permitted addresses, DNS lookups, trusted certificates
- client: HTTP requests through the guard

`ams.provisioning.gocdb` does not use this package, as the operator configures its host.
"""
