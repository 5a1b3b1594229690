"""Heartbeats, in a partition for each day. Django has no operation that makes a partitioned table."""

from django.db import migrations, models

from controlplane.core.model_fields import ClockTimestamp

TABLES = """
CREATE TABLE liveness_heartbeat (
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    server_id uuid NOT NULL,
    cpu_percent smallint,
    memory_percent smallint
) PARTITION BY RANGE (at);
CREATE INDEX heartbeat_of_server ON liveness_heartbeat (server_id, at) INCLUDE (cpu_percent, memory_percent);
CREATE TABLE liveness_heartbeat_default PARTITION OF liveness_heartbeat DEFAULT;

CREATE TABLE liveness_attemptheartbeat (
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    server_id uuid NOT NULL,
    attempt_id uuid NOT NULL,
    role text NOT NULL,
    hostname text,
    pid integer
) PARTITION BY RANGE (at);
CREATE INDEX heartbeat_of_attempt ON liveness_attemptheartbeat (attempt_id, at);
CREATE TABLE liveness_attemptheartbeat_default PARTITION OF liveness_attemptheartbeat DEFAULT;

DO $$
DECLARE
    parent text;
    day timestamp;
BEGIN
    FOREACH parent IN ARRAY array['liveness_heartbeat', 'liveness_attemptheartbeat'] LOOP
        FOR n IN -1 .. 7 LOOP
            day := date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC') + n * interval '1 day';
            EXECUTE format(
                'CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)', parent || to_char(day, '_YYYY_MM_DD'),
                parent, day AT TIME ZONE 'UTC', (day + interval '1 day') AT TIME ZONE 'UTC'
            );
        END LOOP;
    END LOOP;
END
$$;
"""

STATE = [
    migrations.CreateModel(
        name="Heartbeat",
        fields=[
            (
                "pk",
                models.CompositePrimaryKey(
                    "server_id", "at", blank=True, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("at", models.DateTimeField(db_default=ClockTimestamp())),
            ("server_id", models.UUIDField()),
            ("cpu_percent", models.SmallIntegerField(null=True)),
            ("memory_percent", models.SmallIntegerField(null=True)),
        ],
        options={
            "indexes": [
                models.Index(
                    fields=["server_id", "at"], include=["cpu_percent", "memory_percent"], name="heartbeat_of_server"
                )
            ]
        },
    ),
    migrations.CreateModel(
        name="AttemptHeartbeat",
        fields=[
            (
                "pk",
                models.CompositePrimaryKey(
                    "attempt_id", "at", blank=True, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("at", models.DateTimeField(db_default=ClockTimestamp())),
            ("server_id", models.UUIDField()),
            ("attempt_id", models.UUIDField()),
            ("role", models.TextField(choices=[("claimer", "Claimer"), ("runner", "Runner")])),
            ("hostname", models.TextField(null=True)),
            ("pid", models.IntegerField(null=True)),
        ],
        options={
            "default_permissions": (),
            "indexes": [models.Index(fields=["attempt_id", "at"], name="heartbeat_of_attempt")],
        },
    ),
]


class Migration(migrations.Migration):
    dependencies = [("liveness", "0002_tables")]
    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(TABLES, "DROP TABLE liveness_heartbeat, liveness_attemptheartbeat")
            ],
            state_operations=STATE,
        )
    ]
