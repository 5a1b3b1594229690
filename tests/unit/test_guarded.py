"""Objects in URLs are checked against models and errors that are named by their import paths."""

import pytest
from django.db.models import Model
from django.utils.module_loading import import_string

from controlplane.core.problems import Problem
from liveness.api.access import GUARDED


@pytest.mark.parametrize("kind", GUARDED)
def test_each_guarded_kind_names_a_model_and_its_error(kind):
    model, unknown = map(import_string, GUARDED[kind])
    assert issubclass(model, Model) and issubclass(unknown, Problem)
