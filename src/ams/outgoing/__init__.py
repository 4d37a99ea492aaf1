"""Outgoing HTTP requests to hosts that users configure.

guard    which addresses are connected to, and how they are found; which certificates are trusted
client   HTTP requests through the guard

GOCDB is not asked through here: `ams.provisioning.gocdb` does that itself, as the operator names the host.
"""
