"""Spans, as OpenTelemetry's SDK records them; and, as a program, an agent that writes its own to the file SPANS."""

import importlib.util
import json
import os
import sys

from controlplane.agent import tracing
from tests.support.missing import skip_without


def require_sdk() -> None:
    """Skips the test where it is not installed, or fails it where everything is required."""
    if tracing.api is None or importlib.util.find_spec("opentelemetry.sdk") is None:
        skip_without("opentelemetry-sdk is not installed")


def record(exporter):
    """A provider whose spans go to this exporter as soon as they end."""
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
