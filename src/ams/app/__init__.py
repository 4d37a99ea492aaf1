"""The service and the push server as programs, and offline work on a data folder.

- lifecycle: runs the service, from its settings to an orderly stop
- wiring/: assembles the service: engines, use cases, routes
- push_server/: `ams push`, the push server as a program of its own
- backup/: backups of a data folder, and restoring them
- moving/: exports an installation to one file, and imports it into an empty one
- maintenance: checks a data folder, and rotates the key of its tokens
"""
