"""Django signals that tasks and services send. They are apart, so that a receiver need not import the senders."""

from django.dispatch import Signal

checking = Signal()
"""Sent before the liveness check: its process is an executor."""
item_done = Signal()
"""Sent with the `item` of a batch and the `row` it acted on, in the transaction that records the result."""
