"""Filter of queues."""

from django import forms

from controlplane.console.selectors.filters.base import Filter


class QueueListFilter(Filter):
    tag = forms.CharField(required=False, max_length=100)
    namespace = forms.CharField(required=False, max_length=90)
