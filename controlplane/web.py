"""What granian serves: Django behind its front, in a process that is a server of its own.

granian imports this in each worker process, after it was forked. Whatever imports wsgi.py starts nothing.
"""

import os
import socket

import controlplane.wsgi  # before all else: it sets Django up
from controlplane.core.garbage_collection import keep_what_is_imported
from controlplane.observability import presence
from controlplane.observability.address import build_own_client
from controlplane.serving.front import Front
from controlplane.serving.process_limits import raise_limit_of_sockets, threads
from jobs.services import hints
from liveness.states import ServerType

raise_limit_of_sockets()
hints.announcer.enabled = True
application = Front(controlplane.wsgi.application, threads())
presence.register_process(ServerType.WEBSERVER, f"web@{socket.gethostname()}-{os.getpid()}", build_own_client)
keep_what_is_imported()
