"""The benches: how fast the service is, as ratios to comparators measured in the same run.

`python -m bench` runs them; `docs/how-to/bench.md` tells how to read what comes out.
"""
