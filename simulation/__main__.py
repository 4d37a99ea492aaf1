"""`python -m simulation`."""

from simulation.search import main

main()
