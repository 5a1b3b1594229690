"""Settings of a project whose tasks run on another backend, which the environment names."""

import os

from psycopg.conninfo import conninfo_to_dict

_BACKEND = os.environ["TASKS_BACKEND"]
_ADDRESS = conninfo_to_dict(os.environ["DATABASE_URL"])
_NAMES = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}

SECRET_KEY = "of a benchmark"
USE_TZ = True
INSTALLED_APPS = [_BACKEND.partition(".")[0]]
TASKS = {"default": {"BACKEND": _BACKEND}}
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "CONN_MAX_AGE": 600,  # seconds; ours keeps its connections too
        **{name: _ADDRESS.get(ours, "") for name, ours in _NAMES.items()},
    }
}
