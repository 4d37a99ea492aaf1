"""The service and the push server, put together and started, and work on a whole data folder.

serving         from settings to a running service, and back in order when it is stopped
wiring/         the service, put together: engines, use cases, routes
push_server/    `ams push`: the push server as a program of its own
backup/         backups of a data folder, and restoring them
moving/         an installation into one file, and from there into an empty one
maintenance     checking a data folder, and changing the key of its tokens
"""
