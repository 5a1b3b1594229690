"""Web application that leaves a new job to its best worker for a minute, however slow the machine is."""

import controlplane.web
from controlplane.serving import hints

hints.CLAIMED_WITHIN = hints.BETTER_FIRST = 60.0
application = controlplane.web.application
