"""Django settings. Installations change them with environment variables."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import structlog
from csp.constants import NONE, SELF

from controlplane import database_settings, openapi_settings, openid_settings
from controlplane.agent import clean_text
from controlplane.agent.limits import BODY_LIMIT
from controlplane.agent.processes import environment
from controlplane.agent.secrets.values import mask_event
from controlplane.core import durations, signing_keys
from controlplane.core.refused_requests import write_on_one_line
from controlplane.embedded import postgres, secret_key
from controlplane.embedded.data_dir import find_data_dir

DATA_DIR = find_data_dir()

SECRET_KEY = os.environ.get("SECRET_KEY") or secret_key.load_or_create_key(DATA_DIR)
# Earlier keys. Signatures made with them are still accepted.
SECRET_KEY_FALLBACKS = signing_keys.split_keys(os.environ.get("SECRET_KEY_FALLBACKS", ""))
for setting, key in [("SECRET_KEY", SECRET_KEY), *(("SECRET_KEY_FALLBACKS", key) for key in SECRET_KEY_FALLBACKS)]:
    if key and (weakness := signing_keys.explain_weak_key(setting, key)):
        raise SystemExit(weakness)
DEBUG = os.environ.get("DEBUG", "") == "1"
ALLOWED_HOSTS = os.environ.get("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]").split(",")
# A proxy in front speaks TLS, and sets a header that it drops from requests.
BEHIND_TLS = os.environ.get("BEHIND_TLS", "") == "1"
CSRF_TRUSTED_ORIGINS = [o for o in os.environ.get("CSRF_TRUSTED_ORIGINS", "").split(",") if o]

# Settings of the control plane. liveness/conf.py and jobs/conf.py list every key and its default.
LIVENESS: dict[str, object] = {}
JOBS: dict[str, object] = {}

INSTALLED_APPS = [
    "controlplane",
    "controlplane.console",
    "jobs",
    "liveness",
    "django.contrib.admin.apps.SimpleAdminConfig",  # site_urls.py imports the admins, so only web processes do
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "csp",
    "django_htmx",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "pgtrigger",
]

MIDDLEWARE = [
    "controlplane.core.problems.DatabaseDown",
    "controlplane.core.problems.OddInput",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.middleware.gzip.GZipMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "controlplane.console.sign_in.Sessions",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "controlplane.observability.request_log.RequestLog",
    "controlplane.core.database.replica.PrimaryAfterChange",
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
try:
    openid = openid_settings.read_environment(os.environ)
except ValueError as error:
    raise SystemExit(f"Sign-in by OpenID Connect: {error}") from None
if openid:
    if find_spec("mozilla_django_oidc") is None:
        raise SystemExit("OIDC_ISSUER needs mozilla-django-oidc: run `pip install 'controlplane[oidc]'`.")
    globals().update(openid)
    AUTHENTICATION_BACKENDS.insert(0, "controlplane.console.openid.OpenIdUsers")
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
SESSION_COOKIE_AGE = 12 * 3600  # seconds since the last use
SESSION_LONGEST = 14 * 86400  # seconds since signing in, however often it is used
CSRF_FAILURE_VIEW = "controlplane.console.views.errors.csrf_failure"
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"  # saves a cookie

if BEHIND_TLS:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_SSL_REDIRECT = True
    SECURE_REDIRECT_EXEMPT = [r"^(livez|readyz|healthz)$"]  # for load balancers and kubelets without TLS
    if not (hsts := os.environ.get("HSTS_SECONDS", f"{365 * 86400}")).isdecimal():
        raise SystemExit(
            f"HSTS_SECONDS: {hsts!r} is not a whole number of seconds. It sets how long browsers insist on TLS."
        )
    SECURE_HSTS_SECONDS = int(hsts)
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
    SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "__Host-sessionid", "__Host-csrftoken"
    # Only the owner of the domain can promise HSTS for names below ours, and for browsers that were never here. No such
    # name can set a cookie with the prefix __Host-.
    SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        # In a wheel `templates/` is inside the console, where APP_DIRS finds it.
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
    DATABASES, DATABASE_DIRECT = database_settings.read_environment(
        os.environ, os.environ.get("DATABASE_URL") or postgres.database_url(DATA_DIR)
    )
except ValueError as error:
    raise SystemExit(
        f"A DATABASE_…_URL, DATABASE_POOL_SIZE or a DATABASE_…_TIMEOUT cannot be read: {error}. Write "
        "DATABASE_URL=postgresql://user:password@host:5432/name, DATABASE_POOL_SIZE=8 and DATABASE_LOCK_TIMEOUT=5s."
    ) from None
for variable in ("PGDATESTYLE", "PGTZ"):  # libpq would send them after our options
    os.environ.pop(variable, None)

STATIC_URL = "/static/"
# Static files are served from their packages. A web server in front may use a copy made by `collectstatic`.
STATIC_ROOT = os.environ.get("CONTROLPLANE_STATIC_ROOT")
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "controlplane.serving.static_files.PackageFiles"},
}
STATICFILES_FINDERS = ["controlplane.serving.static_files.WithoutSourceMaps"]
WHITENOISE_USE_FINDERS = True
WHITENOISE_MAX_AGE = 86400  # seconds; pages use another URL when a file changes

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
DATA_UPLOAD_MAX_NUMBER_FILES = 0  # nothing here accepts files, so no upload is written to disk

SPECTACULAR_SETTINGS = openapi_settings.DOCUMENT

EXECUTOR_READY_FILE = os.environ.get("EXECUTOR_READY_FILE")
CELERY_BROKER_URL = os.environ.get("CELERY_BROKER_URL", "filesystem://localhost")
try:
    BROKER_TIMEOUT = durations.parse_duration(os.environ.get("BROKER_TIMEOUT") or "10s") or 0
    if BROKER_TIMEOUT < 1:
        raise ValueError("it must be at least 1 s, so that a broker has time to answer")
except ValueError as error:
    raise SystemExit(f"BROKER_TIMEOUT: {error}. Write BROKER_TIMEOUT=10s.") from None

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
    [structlog.processors.JSONRenderer()]  # escapes non-ASCII characters
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
    # Heartbeats and ticks are too frequent for the log. Failures are logged where they happen.
    "loggers": {
        "controlplane.observability.request_log": {"level": "WARNING"},
        "django.request": {"level": "ERROR"},
        # The start and the end of each task. They would be output of its job, which has both times already.
        "django_tasks": {"level": "WARNING"},
        "django.tasks": {"level": "WARNING"},
        "celery": {"level": "WARNING"},
        "kombu": {"level": "WARNING"},
        # At DEBUG they log the URLs of alerts, which contain tokens.
        "apprise": {"level": "WARNING"},
        "urllib3": {"level": "WARNING"},
    },
}
