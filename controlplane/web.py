"""Application that granian serves: Django behind the front, in a process that registers as a server.

granian imports this module in each worker process, after the fork. Importing wsgi.py starts nothing.
"""

import os
import socket

import controlplane.wsgi  # imported first, because it sets up Django
from controlplane.core.garbage_collection import keep_what_is_imported
from controlplane.observability import presence, resumption
from controlplane.observability.address import build_own_client
from controlplane.serving.front import Front
from controlplane.serving.process_limits import raise_limit_of_sockets, threads
from controlplane.startup import make_room_for_heartbeats, refuse_another_key
from jobs.services import hints
from liveness.states import ServerType

refuse_another_key()
make_room_for_heartbeats()
raise_limit_of_sockets()
hints.announcer.enabled = True
application = Front(controlplane.wsgi.application, threads())
resumption.watch_parent()
presence.register_process(ServerType.WEBSERVER, f"web@{socket.gethostname()}-{os.getpid()}", build_own_client)
keep_what_is_imported()
