"""What the page of the demo shows of the jobs: plain rows of their results, and the parts of a page."""
