"""Request of a restart of an execution."""

from controlplane.core.rest import TextField
from jobs.api.serializers.jobs import NoteRequest
from jobs.api.serializers.secrets import InputsField


class RestartRequest(NoteRequest):
    from_step = TextField(
        required=False,
        max_length=255,
        help_text="Key of a step that runs again with its dependents, even if it completed.",
    )
    inputs = InputsField(
        required=False,
        help_text="Inputs of the new execution, instead of the earlier ones. Kept steps do not see them.",
    )
