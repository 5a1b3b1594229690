"""Absence of the package `rich`. An agent's installation has none, and structlog imports it at each start."""

raise ImportError
