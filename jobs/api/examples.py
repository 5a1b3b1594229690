"""Example bodies of the OpenAPI document. tests/integration/api/test_openapi.py sends each of them."""

from drf_spectacular.utils import OpenApiExample

SCRIPT = {"type": "script", "command": "echo hello from try $JOB_ATTEMPT"}

REGISTRATION = OpenApiExample(
    "A worker for two jobs at a time",
    {
        "type": "WORKER",
        "name": "gpu-17",
        "instance_id": "3f0f8a5e-6a2c-4f5e-9d5c-0c7f1b1f9a11",
        "tags": ["gpu", "script"],
        "max_concurrent": 2,
    },
    request_only=True,
)
JOBS = [
    OpenApiExample(
        "A job for a worker with a GPU",
        {"name": "train", "action": SCRIPT, "tags": ["gpu"], "unmatched": "wait", "max_retries": 2},
        request_only=True,
    ),
    OpenApiExample(
        "Two jobs in one call: both or none",
        [{"action": SCRIPT, "unmatched": "wait", "key": f"order-{number}"} for number in (17, 18)],
        request_only=True,
    ),
]
CHANGE = OpenApiExample(
    "Run it now, before others",
    {"priority": 10, "available_at": None, "note": "the customer waits"},
    request_only=True,
)
LIMIT = OpenApiExample(
    "At most two jobs of each customer at once, and ten starts a second",
    {"running": 2, "starts": 10, "per_seconds": 1, "note": "their server is small"},
    request_only=True,
)
FAIR_LIMIT = OpenApiExample(
    "Customers take turns",
    {"fair": True, "note": "one of them submits very many jobs"},
    request_only=True,
)
EXECUTION = OpenApiExample(
    "Two steps, and a hook that runs after a failure",
    {
        "name": "nightly",
        "steps": [
            {"key": "extract", "action": SCRIPT},
            {"key": "load", "depends_on": ["extract"], "action": {"type": "script", "command": "echo loaded"}},
        ],
        "on_error": [{"key": "tell", "action": {"type": "script", "command": "cat"}}],
    },
    request_only=True,
)
STEPS = OpenApiExample(
    "One more step, below a step that is there",
    {"steps": [{"key": "report", "depends_on": ["load"], "action": {"type": "script", "command": "echo sent"}}]},
    request_only=True,
)
ANSWER = OpenApiExample(
    "Approve a deployment",
    {"choice": "approve", "values": {"version": "4.2"}, "note": "tested on staging"},
    request_only=True,
)
TRIGGER = OpenApiExample(
    "Every night at two in Zurich",
    {
        "name": "every night",
        "cron": "0 2 * * *",
        "timezone": "Europe/Zurich",
        "action": {"type": "script", "command": ["echo", '{"fire": true}']},
        "execution": {"name": "nightly", "steps": [{"key": "a", "action": SCRIPT}]},
    },
    request_only=True,
)
BATCHES = [
    OpenApiExample(
        "Resubmit failed jobs that need a GPU",
        {"operation": "resubmit_job", "filter": {"state": "FAILED", "tag": "gpu"}, "note": "the cards are back"},
        request_only=True,
    ),
    OpenApiExample(
        "Run all waiting jobs that need a GPU now, before others",
        {
            "operation": "change_job",
            "filter": {"state": "PENDING", "tag": "gpu"},
            "changes": {"priority": 10, "available_at": None},
            "note": "the customer waits",
        },
        request_only=True,
    ),
    OpenApiExample(
        "Drain two servers",
        {
            "operation": "drain_server",
            "ids": ["01890a5d-ac96-774b-bcce-b302099a8057", "01890a5d-ac96-774b-bcce-b302099a8058"],
            "deadline_seconds": 600,
            "note": "new kernel",
        },
        request_only=True,
    ),
]
