"""Metrics, probes, and the registration of the control plane's own processes as servers."""
