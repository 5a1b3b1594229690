"""The types of actions: how each one starts, and the meaning of the end of its code.

Here belong one runner for each type (script, callable, handler, container, pod) and the policy that chooses one.
"""
