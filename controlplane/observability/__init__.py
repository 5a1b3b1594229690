"""Metrics, probes, and the processes of the control plane as servers of their own."""
