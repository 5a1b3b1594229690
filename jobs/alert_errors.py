"""Refusals of calls about incidents, channels and messages. The docstring of a class is the error message."""

from controlplane.core.problems import Problem


class IncidentUnknown(Problem):
    """The incident does not exist."""

    status = 404
    code = "not_found"


class ChannelUnknown(Problem):
    """The channel does not exist, or it was removed."""

    status = 404
    code = "not_found"


class ImpossibleChannel(Problem):
    """No message could be sent over this channel."""

    status = 400
    code = "invalid"


class IncidentEnded(Problem):
    """The incident has ended, so there is nothing to acknowledge."""

    code = "incident_ended"


class IncidentAcknowledged(Problem):
    """The incident is already acknowledged."""

    code = "incident_acknowledged"


class IncidentReassigned(Problem):
    """The owner of the incident has changed."""

    code = "changed"


class MessageUnknown(Problem):
    """There is no such message that was given up. It may have been sent, or it will be tried again anyway."""

    status = 404
    code = "not_found"
