"""Django settings. What an installation may want to change is read from the environment."""

import os
from pathlib import Path
from typing import Any

import dj_database_url
import structlog
from csp.constants import NONE, SELF

from controlplane import openapi_settings
from controlplane.agent import clean_text, environment
from controlplane.agent.limits import BODY_LIMIT
from controlplane.agent.secret_values import mask_event
from controlplane.core import database_limits
from controlplane.core.refused_requests import write_on_one_line
from controlplane.embedded import postgres, secret_key
from controlplane.embedded.data_dir import find_data_dir

DATA_DIR = find_data_dir()

SECRET_KEY = os.environ.get("SECRET_KEY") or secret_key.load_or_create_key(DATA_DIR)
DEBUG = os.environ.get("DEBUG", "") == "1"
ALLOWED_HOSTS = os.environ.get("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]").split(",")
# A proxy in front speaks TLS, and says so in a header that no request may bring through it.
BEHIND_TLS = os.environ.get("BEHIND_TLS", "") == "1"
CSRF_TRUSTED_ORIGINS = [o for o in os.environ.get("CSRF_TRUSTED_ORIGINS", "").split(",") if o]

# What the control plane is configured by; every key and its default: liveness/conf.py, jobs/conf.py.
LIVENESS: dict[str, object] = {}
JOBS: dict[str, object] = {}

INSTALLED_APPS = [
    "controlplane",
    "controlplane.console",
    "jobs",
    "liveness",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "csp",
    "django_htmx",
    "django_structlog",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "pgtrigger",
]

MIDDLEWARE = [
    "controlplane.core.problems.DatabaseDown",
    "controlplane.core.problems.OddInput",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "controlplane.console.sign_in.Sessions",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "controlplane.observability.request_log.RequestLog",
]

ROOT_URLCONF = "controlplane.site_urls"
WSGI_APPLICATION = "controlplane.wsgi.application"
APPEND_SLASH = True
X_FRAME_OPTIONS = "DENY"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LOGIN_URL = "admin:login"

AUTHENTICATION_BACKENDS = ["controlplane.console.sign_in.Throttled"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
SESSION_COOKIE_AGE = 12 * 3600  # seconds, from the last use on
SESSION_LONGEST = 14 * 86400  # seconds, from signing in on, however much it is used
CSRF_FAILURE_VIEW = "controlplane.console.views.errors.csrf_failure"
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"  # no cookie more

if BEHIND_TLS:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_SSL_REDIRECT = True
    SECURE_REDIRECT_EXEMPT = [r"^(livez|readyz|healthz)$"]  # of load balancers and kubelets, which speak no TLS
    if not (hsts := os.environ.get("HSTS_SECONDS", f"{365 * 86400}")).isdecimal():
        raise SystemExit(f"HSTS_SECONDS: {hsts!r} is no whole number of seconds, for which browsers stay with TLS.")
    SECURE_HSTS_SECONDS = int(hsts)
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
    SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "__Host-sessionid", "__Host-csrftoken"
    # HSTS for other names below ours, and for browsers that were never here, is for whoever owns the domain to promise;
    # no such name can set a cookie with the prefix __Host-.
    SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        # A wheel has `templates/` inside the console, where APP_DIRS looks.
        "DIRS": [
            Path(__file__).parent / "site_templates",
            *(Path(root, "templates") for root in environment.sources()),
        ],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

try:
    DATABASES = {"default": dj_database_url.parse(os.environ.get("DATABASE_URL") or postgres.database_url(DATA_DIR))}
    if "postg" not in (engine := DATABASES["default"]["ENGINE"]):
        raise ValueError(f"the control plane needs PostgreSQL 15 or later, and this is {engine.rpartition('.')[2]}")
    pool_size = int(os.environ.get("DATABASE_POOL_SIZE", "8"))
    limited = database_limits.connection_options(DATABASES["default"].get("OPTIONS", {}).get("options", ""))
except ValueError as error:
    raise SystemExit(
        f"DATABASE_URL, DATABASE_POOL_SIZE or a DATABASE_…_TIMEOUT cannot be read: {error}. Write "
        "DATABASE_URL=postgresql://user:password@host:5432/name, DATABASE_POOL_SIZE=8 and DATABASE_LOCK_TIMEOUT=5s."
    ) from None
DATABASES["default"]["ENGINE"] = "controlplane.core.database"
# Each web or executor process holds a small pool; the embedded PostgreSQL allows 100 connections in all.
# A connection is not tried before it is used: that would be a second round trip in each request. And an attempt to
# connect is given up soon: while one waits out its back-off, the pool makes no other, though the database is back.
pool = {"min_size": 0, "max_size": pool_size, "timeout": 5, "reconnect_timeout": 1}
DATABASES["default"]["OPTIONS"] = {
    **DATABASES["default"].get("OPTIONS", {}),
    **limited,
    "pool": pool_size > 0 and pool,
    "connect_timeout": 5,
    "tcp_user_timeout": 15_000,  # ms; a connection that a firewall has forgotten would hang for a quarter of an hour
    # PgBouncer in its transaction mode may want them off. Only what is said all the time is prepared.
    "prepare_threshold": 5 if os.environ.get("DATABASE_PREPARED_STATEMENTS", "1") == "1" else None,
}

STATIC_URL = "/static/"
# They are served from the packages they lie in; a web server of one's own may be given what `collectstatic` copies.
STATIC_ROOT = os.environ.get("CONTROLPLANE_STATIC_ROOT")
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "controlplane.serving.static_files.PackageFiles"},
}
WHITENOISE_USE_FINDERS = True
WHITENOISE_MAX_AGE = 86400  # seconds; what pages name has another address when it has changed

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}
DATA_UPLOAD_MAX_MEMORY_SIZE = BODY_LIMIT
DATA_UPLOAD_MAX_NUMBER_FILES = 0  # nothing here takes files: what strangers upload is never written to disk

SPECTACULAR_SETTINGS = openapi_settings.DOCUMENT

CELERY_BROKER_URL = os.environ.get("CELERY_BROKER_URL", "filesystem://localhost")

SHARED_PROCESSORS: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]
structlog.configure(
    processors=[*SHARED_PROCESSORS, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
    logger_factory=structlog.stdlib.LoggerFactory(),
    cache_logger_on_first_use=True,
)
RENDERERS: list[Any] = (
    [structlog.processors.JSONRenderer()]  # escapes whatever is not ASCII
    if os.environ.get("LOG_FORMAT") == "json"
    else [clean_text.escape_event, structlog.dev.ConsoleRenderer(colors=False)]
)
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "lines": {
            "()": structlog.stdlib.ProcessorFormatter,
            "processors": [
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                mask_event,
                *RENDERERS,
            ],
            "foreign_pre_chain": SHARED_PROCESSORS,
        }
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "lines", "filters": [write_on_one_line]}},
    "root": {"handlers": ["stderr"], "level": os.environ.get("LOG_LEVEL", "INFO")},
    # A heartbeat a second from each of a thousand servers is no news, nor is a tick; failures are logged at source.
    "loggers": {
        "django_structlog": {"level": "WARNING"},
        "django.request": {"level": "ERROR"},
        "celery": {"level": "WARNING"},
        "kombu": {"level": "WARNING"},
    },
}
