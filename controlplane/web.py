"""What granian serves: the WSGI application, in a process that is a server of its own.

granian imports this in each worker process, after it was forked. Whatever imports wsgi.py starts nothing.
"""

import os
import socket

import controlplane.wsgi  # before all else: it sets Django up
from controlplane import presence
from controlplane.address import client_of_itself
from liveness.states import ServerType

application = controlplane.wsgi.application
presence.begin(ServerType.WEBSERVER, f"web@{socket.gethostname()}-{os.getpid()}", client_of_itself)
