"""Where every trail begins, and the page of what is not there."""

from controlplane.console.views.page import HOME, show_not_found

__all__ = ["HOME", "show_not_found"]
