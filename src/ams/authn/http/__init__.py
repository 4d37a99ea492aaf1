"""The certificate service over HTTPS: handshakes, proxies, routes, and errors in its envelope (contract 2 to 4)."""
