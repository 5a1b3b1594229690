"""Spans recorded by OpenTelemetry's SDK.

Run as a program, this module is an agent that writes spans to the file SPANS.
"""

import importlib.util
import json
import os
import sys

from controlplane.agent import tracing
from tests.support.missing import skip_without


def require_sdk() -> None:
    """Skip the test if the SDK is missing, or fail it if REQUIRE_ALL is set."""
    if tracing.api is None or importlib.util.find_spec("opentelemetry.sdk") is None:
        skip_without("opentelemetry-sdk is not installed")


def record(exporter):
    """Return a provider that passes ended spans to this exporter."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def run_agent() -> int:
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter

    from controlplane.agent.__main__ import main

    file = open(os.environ["SPANS"], "a", buffering=1)  # noqa: SIM115 - until the process ends
    lines = ConsoleSpanExporter(out=file, formatter=lambda span: f"{json.dumps(json.loads(span.to_json()))}\n")
    tracing.api.set_tracer_provider(record(lines))
    return main()


if __name__ == "__main__":
    sys.exit(run_agent())
