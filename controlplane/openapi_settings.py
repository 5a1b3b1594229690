"""Settings of drf-spectacular for our document only."""

from typing import Any

from jobs.states import BatchState
from liveness.states import Subject

DOCUMENT: dict[str, Any] = {
    "TITLE": "Control plane",
    "DESCRIPTION": "Servers register and heartbeat, workers claim and report, clients submit.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": [],
    # Enums that occur in several answers, or under several names.
    "ENUM_NAME_OVERRIDES": {
        "BatchState": BatchState.choices(),
        "Subject": list(Subject),
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "controlplane.openapi.allow_null_of_anything",
        "controlplane.openapi.add_problem_responses",
    ],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
}
