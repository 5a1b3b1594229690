"""Refusals of calls about incidents and channels. The docstring of a class is the message that the caller gets."""

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
