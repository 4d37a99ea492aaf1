"""The routes of the API behind the hot routes, a file for each resource; `ams.app.wiring.assembly` joins them."""
