"""The job `cloud-info`: offers of a cloud federation's sites, from their latest descriptions."""
