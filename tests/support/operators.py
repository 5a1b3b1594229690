"""Actions of an operator over the API, by name, and the actions that must precede them."""

from typing import Any

from liveness.models import Brake, ServerEvent
from tests.support.http import Caller

ACTIONS = ["cordon", "uncordon", "drain", "undrain", "disconnect"]
CALLS: dict[str, tuple[str, str, Any]] = {
    **{action: ("POST", f"/servers/{{}}/{action}", {"note": "a test"}) for action in ACTIONS},
    "maintenance_enter": ("POST", "/maintenance/enter", {"note": "a test"}),
    "maintenance_exit": ("POST", "/maintenance/exit", {"note": "a test"}),
    "brake_release": ("POST", "/brake/release", {"reason": "a test"}),
    "list": ("GET", "/servers", b""),
    "detail": ("GET", "/servers/{}", b""),
}
BEFORE = {"uncordon": ["cordon"], "undrain": ["drain"], "maintenance_exit": ["maintenance_enter"]}


class Operator:
    """Caller with the role of an operator: `operator("cordon", server)` returns the body of the answer."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller

    def __call__(self, name: str, server: Any = None, status: int = 200, **options: Any) -> Any:
        method, address, body = CALLS[name]
        answer = self.caller.call(method, address.format(server and server.id), {**body, **options} if body else body)
        assert answer.status_code == status, answer.json()
        return answer.json()


def engage(type: str = "WORKER") -> Brake:
    return Brake.objects.create(type=type, engaged_observed=0, silent=3, alive=4)


def actions(**of: Any) -> list[str]:
    """Return the actions by people, oldest first."""
    return list(ServerEvent.objects.exclude(action="").filter(**of).values_list("action", flat=True))
