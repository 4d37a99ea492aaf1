"""The program `ams`: serving, operating, and a client for people and scripts."""
