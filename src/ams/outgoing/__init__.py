"""Outgoing HTTP requests to hosts that users configure.

guard, lookups   which addresses are connected to, and how they are found; which certificates are trusted
client           HTTP requests through the guard
sharing          one task for all who want the same

What GOCDB lists is not fetched through here: `ams.provisioning.gocdb` does that itself, as the operator names the
host.
"""
