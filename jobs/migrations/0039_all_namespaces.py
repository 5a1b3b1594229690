"""Whoever sees all namespaces today keeps them, by the permission `view_all_namespaces`.

Until now a person without a permission for a namespace saw all of them. From here on such a person sees none. A group
gets the permission if it has members and none of them is held to some namespaces. Other persons get it themselves.
"""

from django.conf import settings
from django.db import migrations, router
from django.db.models import Q

LABELS = ("jobs", "liveness")
OWN = Q(content_type__app_label__in=LABELS)
OF_NAMESPACE = Q(content_type__app_label="liveness", codename__startswith="namespace:")


def keep_all_namespaces(apps, schema_editor):
    alias = schema_editor.connection.alias
    Group, Permission = apps.get_model("auth", "Group"), apps.get_model("auth", "Permission")
    if not router.allow_migrate_model(alias, Group):
        return  # a database without people
    types = apps.get_model("contenttypes", "ContentType").objects.using(alias)
    server, _ = types.get_or_create(app_label="liveness", model="server")
    shows_all, _ = Permission.objects.using(alias).get_or_create(
        content_type=server, codename="view_all_namespaces", defaults={"name": "Can view all namespaces"}
    )
    Group.objects.using(alias).get_or_create(name="Control plane all namespaces")[0].permissions.add(shows_all)
    User = apps.get_model(settings.AUTH_USER_MODEL)
    if not {"groups", "user_permissions"} <= {field.name for field in User._meta.many_to_many}:
        return  # a project whose people have permissions of another kind
    users = User._default_manager.using(alias)
    own, of_namespace = (list(Permission.objects.using(alias).filter(some)) for some in (OWN, OF_NAMESPACE))

    def holding(permissions):
        return Q(user_permissions__in=permissions) | Q(groups__permissions__in=permissions)

    limited = set(users.filter(holding(of_namespace)).values_list("pk", flat=True))
    unlimited = set(users.filter(holding(own)).values_list("pk", flat=True)) - limited
    for group in Group.objects.using(alias).filter(permissions__in=own).distinct():
        members = set(users.filter(groups=group.pk).values_list("pk", flat=True))
        if members and not members & limited:
            group.permissions.add(shows_all)
            unlimited -= members
    for user in users.filter(pk__in=unlimited):
        user.user_permissions.add(shows_all)


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0038_batch_item_namespaces"),
        ("liveness", "0029_event_namespaces"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]
    operations = [migrations.RunPython(keep_all_namespaces, migrations.RunPython.noop, hints={"app": "auth"})]
