"""Connections of our own servers, below HTTP.

listener    accepts connections of one port, within limits, and hands each to a protocol

It knows neither HTTP nor ASGI nor uvicorn. The API, the certificate service and all operations ports use it.
"""
