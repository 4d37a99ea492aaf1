"""Every request and answer of both services, once: the routes and the client use the same structs.

A module for each resource. Nothing here knows how an answer is made or what becomes of a request.
"""
