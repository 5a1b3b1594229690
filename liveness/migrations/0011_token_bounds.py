import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('liveness', '0010_left_out'),
    ]

    operations = [
        migrations.AddField(
            model_name='apitoken',
            name='cluster',
            field=models.TextField(help_text='The cluster that alone they may be of. Null: any.', null=True),
        ),
        migrations.AddField(
            model_name='apitoken',
            name='max_servers',
            field=models.IntegerField(help_text='How many of them may be there at once. Null: any number.', null=True),
        ),
        migrations.AddField(
            model_name='apitoken',
            name='tags',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), help_text='The tags that alone these may have. Null: any.', null=True, size=None),
        ),
        migrations.AddField(
            model_name='apitoken',
            name='types',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), help_text='What alone may register with it. Null: any.', null=True, size=None),
        ),
    ]
