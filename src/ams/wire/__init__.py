"""Every request and answer of both services, once: the routes and the client use the same structs.

A module for each resource. Only the structs: no code that handles requests or makes responses.
"""
