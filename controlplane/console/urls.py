"""URLs of the Instance pages, below `/admin/instance/`."""

from django.urls import URLPattern, path

from controlplane.console.actions import targets
from controlplane.console.actions.bulk_actions import build_action_page
from controlplane.console.page import choose_poll_interval
from controlplane.console.views import (
    activity,
    alerts,
    answers,
    backfills,
    batches,
    channels,
    executions,
    failures,
    history,
    holds,
    incidents,
    job,
    job_forms,
    jobs,
    kill,
    limit_forms,
    limits,
    logs,
    maintenance,
    messages,
    overview,
    queues,
    recovery,
    retries,
    saved_views,
    search,
    server_config,
    servers,
    tokens,
    trigger_forms,
    triggers,
)


def build_action_paths() -> list[URLPattern]:
    """Return the paths of the operator actions, one for each action."""
    return [
        path(f"{folder}/{name}/", build_action_page(target, action), name=f"{folder}_{name}")
        for folder, target, actions in targets.ACTIONS
        for name, action in actions.items()
    ]


app_name = "instance"
urlpatterns = [
    path("", overview.show_overview, name="overview"),
    path("poll/", choose_poll_interval, name="poll"),
    path("first-steps/hide/", overview.hide_first_steps, name="hide_first_steps"),
    path("views/save/", saved_views.save_view, name="save_view"),
    path("search/", search.show_search, name="search"),
    path("servers/", servers.show_servers, name="servers"),
    path("servers/<uuid:server>/", servers.show_server, name="server"),
    path("servers/<uuid:server>/change/", server_config.change_server, name="server_change"),
    path("jobs/", jobs.show_jobs, name="jobs"),
    path("jobs/errors/", failures.show_errors, name="errors"),
    path("jobs/add/", job_forms.add_job, name="job_add"),
    path("jobs/<uuid:job>/", job.show_job, name="job"),
    path("jobs/<uuid:job>/again/", job_forms.run_job_again, name="job_again"),
    path("jobs/<uuid:job>/edit/", job_forms.edit_job, name="job_edit"),
    path("jobs/<uuid:job>/log/", logs.show_job_log, name="log"),
    path("jobs/<uuid:job>/logs/", logs.stream_job_logs, name="job_logs"),
    path("executions/", executions.show_executions, name="executions"),
    path("executions/<uuid:execution>/", executions.show_execution, name="execution"),
    path("executions/<uuid:execution>/retry/", retries.retry_execution, name="retry"),
    path("limits/", limits.show_limits, name="limits"),
    path("limits/set/", limit_forms.set_rule, name="limit_set"),
    path("limits/delete/", limit_forms.delete_rule, name="limit_delete"),
    path("triggers/", triggers.show_triggers, name="triggers"),
    path("triggers/add/", trigger_forms.add_trigger, name="trigger_add"),
    path("triggers/<uuid:trigger>/", triggers.show_trigger, name="trigger"),
    path("triggers/<uuid:trigger>/edit/", trigger_forms.edit_trigger, name="trigger_edit"),
    path("triggers/<uuid:trigger>/backfills/add/", backfills.add_backfill, name="backfill_add"),
    path("triggers/<uuid:trigger>/backfills/<uuid:backfill>/stop/", backfills.stop_backfill, name="backfill_stop"),
    path("holds/", holds.show_holds, name="holds"),
    path("holds/add/", holds.add_hold, name="hold_add"),
    path("holds/kill/", kill.show_kill, name="hold_kill"),
    path("holds/<uuid:hold>/release/", holds.release_hold, name="hold_release"),
    path("queues/", queues.show_queues, name="queues"),
    path("answers/", answers.show_answers, name="answers"),
    path("answers/<uuid:job>/", answers.answer_job, name="answer"),
    path("trends/", history.show_trends, name="trends"),
    path("batches/", batches.show_batches, name="batches"),
    path("batches/<uuid:batch>/", batches.show_batch, name="batch"),
    path("batches/<uuid:batch>/stop/", batches.show_stop, name="batch_stop"),
    path("activity/", activity.show_activity, name="activity"),
    path("alerts/", alerts.show_alerts, name="alerts"),
    path("alerts/<uuid:incident>/", incidents.show_incident, name="incident"),
    path("alerts/<uuid:incident>/acknowledge/", incidents.acknowledge_incident, name="incident_acknowledge"),
    path("alerts/<uuid:incident>/assign/", incidents.assign_incident, name="incident_assign"),
    path("alerts/<uuid:incident>/comment/", incidents.comment_on_incident, name="incident_comment"),
    path("alerts/channels/add/", channels.add_channel, name="channel_add"),
    path("alerts/channels/<uuid:channel>/remove/", channels.remove_channel, name="channel_remove"),
    path("alerts/mute/", alerts.mute_rule, name="alerts_mute"),
    path("alerts/unmute/", alerts.unmute_rule, name="alerts_unmute"),
    path("alerts/<uuid:message>/send-again/", messages.send_again, name="message_send_again"),
    path("alerts/test/", alerts.test_channels, name="alerts_test"),
    path("tokens/", tokens.show_tokens, name="tokens"),
    path("tokens/add/", tokens.add_token, name="token_add"),
    path("tokens/<uuid:token>/revoke/", tokens.revoke_token, name="token_revoke"),
    path("maintenance/", maintenance.show_maintenance, name="maintenance"),
    path("maintenance/enter/", maintenance.enter_maintenance, name="maintenance_enter"),
    path("maintenance/exit/", maintenance.exit_maintenance, name="maintenance_exit"),
    path("brake/", maintenance.show_brake, name="brake"),
    path("brake/release/", maintenance.release_brake, name="brake_release"),
    path("quarantine/", activity.show_quarantine, name="quarantine"),
    path("recovery/", recovery.show_stale_attempts, name="recovery"),
    path("recovery/<slug:name>/", recovery.show_manual_recovery, name="by_hand"),
    *build_action_paths(),
]
