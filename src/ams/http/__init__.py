"""The HTTP surface: API v1 as the contract says, on raw ASGI for the hot routes and Starlette for the rest."""
