"""The job `cloud-info`: what the sites of a cloud federation offer, by their latest descriptions of themselves."""
