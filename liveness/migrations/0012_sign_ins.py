from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('liveness', '0011_token_bounds'),
    ]

    operations = [
        migrations.CreateModel(
            name='SignIn',
            fields=[
                ('key', models.TextField(help_text='A digest: some type their password where the name belongs.', primary_key=True, serialize=False)),
                ('until', models.DateTimeField(help_text='From then on as if there had been no try.')),
            ],
            options={
                'default_permissions': (),
            },
        ),
    ]
