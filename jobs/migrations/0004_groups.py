"""Groups for people, each with the permissions of its work. Later changes of an administrator stay."""

from django.contrib.auth.management import create_permissions
from django.db import migrations, router

LABELS = ("jobs", "liveness")
VIEWS = {"view_server", "view_workerjob", "view_execution", "view_trigger"}
TRIGGERS = {"add_trigger", "change_trigger", "delete_trigger"}
JOBS = {"add_workerjob", "change_workerjob"}


def make_groups(apps, schema_editor):
    alias = schema_editor.connection.alias
    if not router.allow_migrate_model(alias, apps.get_model("auth", "Group")):
        return  # a database without people
    actions = set()
    for label in LABELS:
        config = apps.get_app_config(label)
        config.models_module = True  # otherwise Django creates the permissions only after all migrations
        create_permissions(config, verbosity=0, using=alias, apps=apps)
        config.models_module = None
        actions |= {name for model in config.get_models() for name, _ in model._meta.permissions}
    own = apps.get_model("auth", "Permission").objects.using(alias).filter(content_type__app_label__in=LABELS)
    all_namespaces = own.get(codename="view_all_namespaces")
    own = own.exclude(codename="view_all_namespaces")  # in a group of its own
    for name, permissions in {
        "viewer": own.filter(codename__in=VIEWS),
        "operator": own.filter(codename__in=VIEWS | TRIGGERS | JOBS | actions),
        "auditor": own.filter(codename__startswith="view_"),
        "administrator": own,
    }.items():
        group, _ = apps.get_model("auth", "Group").objects.using(alias).get_or_create(name=f"Control plane {name}")
        group.permissions.add(*permissions)
    everywhere, _ = apps.get_model("auth", "Group").objects.using(alias).get_or_create(
        name="Control plane all namespaces"
    )
    everywhere.permissions.add(all_namespaces)


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0003_storage"),
        ("liveness", "0004_storage"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]
    operations = [migrations.RunPython(make_groups, migrations.RunPython.noop, hints={"app": "auth"})]
