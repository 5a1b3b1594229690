"""Groups for people, each with the permissions of its work. What an administrator makes of them afterwards stays."""

from django.contrib.auth.management import create_permissions
from django.db import migrations, router

LABELS = ("jobs", "liveness")
VIEWS = {"view_server", "view_workerjob", "view_execution", "view_trigger"}
TRIGGERS = {"add_trigger", "change_trigger", "delete_trigger"}
"""They are an operator's."""


def make_groups(apps, schema_editor):
    alias = schema_editor.connection.alias
    if not router.allow_migrate_model(alias, apps.get_model("auth", "Group")):
        return  # a database without people
    actions = set()
    for label in LABELS:
        config = apps.get_app_config(label)
        config.models_module = True  # as of an app that has models: their permissions are made only after all migrations
        create_permissions(config, verbosity=0, using=alias, apps=apps)
        config.models_module = None
        actions |= {name for model in config.get_models() for name, _ in model._meta.permissions}
    own = apps.get_model("auth", "Permission").objects.using(alias).filter(content_type__app_label__in=LABELS)
    own = own.exclude(codename="view_all_namespaces")  # where that is there already: of no group that says what one may do
    for name, permissions in {
        "viewer": own.filter(codename__in=VIEWS),
        "operator": own.filter(codename__in=VIEWS | TRIGGERS | actions),
        "auditor": own.filter(codename__startswith="view_"),
        "administrator": own,
    }.items():
        group, _ = apps.get_model("auth", "Group").objects.using(alias).get_or_create(name=f"Control plane {name}")
        group.permissions.add(*permissions)


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0019_alerts"),
        ("liveness", "0017_losses"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]
    operations = [migrations.RunPython(make_groups, migrations.RunPython.noop, hints={"app": "auth"})]
