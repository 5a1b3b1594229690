"""What drf-spectacular is told, for our document alone."""

from typing import Any

DOCUMENT: dict[str, Any] = {
    "TITLE": "Control plane",
    "DESCRIPTION": "Servers register and heartbeat, workers claim and report, clients submit.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": [],
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "controlplane.openapi.add_problem_responses",
    ],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
}
