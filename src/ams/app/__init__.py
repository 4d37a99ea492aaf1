"""The service and the push server, put together and started, and work on a whole data folder."""
