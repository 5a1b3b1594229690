"""Fields of filters, which the framework's templates do not render."""

import pytest
from django.forms.renderers import DjangoTemplates
from django.http import QueryDict
from django.test.html import parse_html

from controlplane.console.selectors.filters import activity, executions, jobs, queues, servers

FILTERS = [
    jobs.JobListFilter, jobs.LogPageFilter, servers.ServerListFilter, servers.ScopeFilter,
    executions.ExecutionListFilter, queues.QueueListFilter, activity.ActivityFilter,
]  # fmt: skip
CHOSEN = [
    "",
    "q=%3Cb%3E%22%27%26&state=FAILED&tag=gpu&open=on&attention=1&within=7d&sort=oldest&attempt=2&error=%23",
    "since=2026-01-02T03:04&until=nonsense&state=nonsense&kind=%22",
]


@pytest.mark.parametrize("chosen", CHOSEN, ids=["nothing chosen", "much chosen", "nonsense"])
@pytest.mark.parametrize("of", FILTERS, ids=[of.__name__ for of in FILTERS])
def test_the_fields_of_a_filter_are_as_the_framework_writes_them(of, chosen):
    form = of(QueryDict(chosen))
    for field in form:
        written = str(field)
        form.renderer = DjangoTemplates()
        assert parse_html(written) == parse_html(str(field)), field.name
        form.renderer = of.default_renderer()
