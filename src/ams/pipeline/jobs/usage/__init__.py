"""What a month's messages were: how many, how large, of which topics and publishers. The job `metrics`."""
