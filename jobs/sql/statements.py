"""The statements of the books here. Written by `python -m controlplane.core.sql_rows`."""

from controlplane.core.statements import IdRow, Statement, Statements
from jobs.sql.rows import (
    alerts,
    batches,
    cancellation,
    celery_tasks,
    changes,
    claiming,
    clock,
    execution_repair,
    executions,
    failover,
    heartbeats,
    hints,
    history,
    interventions,
    liveness_check,
    propagation,
    queues,
    rejected_reports,
    reporting,
    retention,
    seeding,
    selectors,
    signals,
    step_data,
    stored_bytes,
    submission,
    sweep,
    tabs,
    taken_attempts,
    triggers,
    unique_jobs,
    verdict,
    waits,
)


class JobsStatements(Statements):
    read_alert_facts: Statement[alerts.AlertFact]
    read_stuck_jobs: Statement[alerts.StuckJobs]
    read_quarantined_jobs: Statement[alerts.QuarantinedJob]
    note_incidents: Statement[alerts.NotedIncidents]
    mark_announced: Statement[IdRow]
    lease_message: Statement[alerts.LeasedMessage]
    note_delivery: Statement[alerts.NotedDelivery]
    delete_old_alerts: Statement[IdRow]
    mute_alerts: Statement[alerts.MutedAlerts]
    begin_batch: Statement[IdRow]
    list_due_batches: Statement[IdRow]
    lease_items: Statement[batches.LeasedItem]
    record_item: Statement[batches.RecordItemRow]
    stop_batch: Statement[IdRow]
    scan_batches: Statement[batches.ScannedIds]
    delete_batches: Statement[batches.Deleted]
    find_overdue_executions: Statement[cancellation.OverdueExecution]
    cancel_executions: Statement[IdRow]
    find_halting_trees: Statement[IdRow]
    halt_steps: Statement[cancellation.HaltStepsRow]
    cancel_blocked_step: Statement[IdRow]
    lock_reported_tasks: Statement[IdRow]
    set_ended_tasks_aside: Statement[IdRow]
    add_tasks: Statement[IdRow]
    move_redelivered_tasks: Statement[celery_tasks.MoveRedeliveredTasksRow]
    begin_tasks: Statement[IdRow]
    start_tasks: Statement[IdRow]
    keep_tasks_alive: Statement[IdRow]
    end_tasks: Statement[celery_tasks.EndTasksRow]
    quarantine_waiting_tasks: Statement[IdRow]
    confirm_sent_tasks: Statement[IdRow]
    count_tasks: Statement[celery_tasks.CountTasksRow]
    judge_reported_tasks: Statement[celery_tasks.JudgeReportedTasksRow]
    read_reporting_server: Statement[celery_tasks.ReadReportingServerRow]
    count_tag_sets: Statement[changes.CountedTagSets]
    lock_server: Statement[IdRow]
    claim_jobs: Statement[claiming.GivenAttempt]
    follow_clock: Statement[clock.FollowClockRow]
    read_clock: Statement[clock.ReadClockRow]
    enqueue_jobs: Statement[IdRow]
    find_stalled_executions: Statement[IdRow]
    find_stalled_jobs: Statement[execution_repair.FindStalledJobsRow]
    find_stalled_evaluations: Statement[IdRow]
    reset_execution: Statement[execution_repair.ResetExecutionRow]
    reset_child: Statement[IdRow]
    submit_executions: Statement[executions.SubmittedExecution]
    submit_executions_counted: Statement[executions.SubmittedExecution]
    list_steps_to_restart: Statement[executions.StepToRestart]
    list_children_to_begin: Statement[executions.ChildToBegin]
    list_step_times: Statement[executions.StepTimes]
    raise_attempt_counts: Statement[failover.RaiseAttemptCountsRow]
    read_new_timeline: Statement[failover.ReadNewTimelineRow]
    record_worker_heartbeat: Statement[heartbeats.RecordedHeartbeat]
    record_plain_heartbeats: Statement[heartbeats.RecordedPlainHeartbeat]
    lock_roots_of_held_steps: Statement[IdRow]
    end_forgotten_attempts: Statement[heartbeats.EndedAttempts]
    list_claimable_jobs: Statement[hints.ClaimableJobs]
    read_server_offer: Statement[hints.ServerOffer]
    read_worker_loads: Statement[hints.WorkerLoad]
    read_end_of_count: Statement[history.EndOfCount]
    lock_history: Statement[history.HistoryLock]
    count_ends: Statement[history.CountedHistory]
    note_present: Statement[history.NotedPresent]
    add_up_hours: Statement[history.AddedHour]
    delete_old_history: Statement[history.DeletedHistory]
    read_history: Statement[history.HistoryPoint]
    read_history_by_key: Statement[history.HistoryOfKey]
    lock_root_of_job: Statement[IdRow]
    lock_job: Statement[interventions.LockedJob]
    cancel_job: Statement[IdRow]
    drop_checkpoint: Statement[IdRow]
    drop_checkpoint_counted: Statement[IdRow]
    move_job: Statement[interventions.EndedAttempt]
    fail_job: Statement[interventions.EndedAttempt]
    ask_to_send_task: Statement[IdRow]
    resubmit_ended_job: Statement[interventions.ResubmitEndedJobRow]
    resubmit_ended_job_counted: Statement[interventions.ResubmitEndedJobRow]
    retire_servers: Statement[liveness_check.RetiredServer]
    note_empty_servers: Statement[liveness_check.NoteEmptyServersRow]
    lock_roots: Statement[IdRow]
    find_freed_executions: Statement[IdRow]
    propagate_ends: Statement[propagation.PropagatedEnd]
    list_queues: Statement[queues.Queue]
    list_largest_queues: Statement[queues.LargestQueue]
    recover_attempts: Statement[heartbeats.EndedAttempts]
    lock_jobs_of_superseded_reports: Statement[IdRow]
    store_superseded_reports: Statement[rejected_reports.StoreSupersededReportsRow]
    find_consequential_attempts: Statement[IdRow]
    lock_reported_roots: Statement[IdRow]
    lock_reported_jobs: Statement[IdRow]
    start_attempts: Statement[IdRow]
    store_progress: Statement[IdRow]
    store_checkpoints: Statement[IdRow]
    store_checkpoints_counted: Statement[IdRow]
    store_log_lines: Statement[reporting.StoredLines]
    store_log_lines_counted: Statement[reporting.StoredLines]
    finish_attempts: Statement[interventions.EndedAttempt]
    finish_attempts_counted: Statement[interventions.EndedAttempt]
    resubmit_live_attempts: Statement[heartbeats.EndedAttempts]
    executions_of_live_attempts: Statement[IdRow]
    read_retention_limits: Statement[retention.RetentionLimits]
    scan_jobs: Statement[batches.ScannedIds]
    lock_old_jobs: Statement[IdRow]
    delete_jobs: Statement[batches.Deleted]
    delete_jobs_counted: Statement[batches.Deleted]
    scan_executions: Statement[batches.ScannedIds]
    lock_old_executions: Statement[IdRow]
    list_steps: Statement[IdRow]
    delete_executions: Statement[batches.Deleted]
    delete_executions_counted: Statement[batches.Deleted]
    scan_servers: Statement[batches.ScannedIds]
    delete_servers: Statement[batches.Deleted]
    scan_slots: Statement[retention.ScannedNumbers]
    delete_slots: Statement[batches.Deleted]
    relax_guards: Statement[seeding.RelaxGuardsRow]
    make_servers: Statement[seeding.MakeServersRow]
    make_jobs: Statement[seeding.MakeJobsRow]
    read_figures: Statement[selectors.InstanceFigures]
    read_job_counts: Statement[selectors.JobCounts]
    read_flags: Statement[selectors.FlaggedJob]
    read_prospects: Statement[selectors.Prospect]
    list_flagged_jobs: Statement[IdRow]
    read_placement: Statement[selectors.PlacementRow]
    read_log_page: Statement[selectors.WrittenLine]
    list_server_lines_of_job: Statement[selectors.ServerLine]
    find_log_lines_before: Statement[selectors.FoundLine]
    find_log_lines_after: Statement[selectors.FoundLine]
    store_signal: Statement[signals.StoredSignal]
    list_signals_to_deliver: Statement[IdRow]
    scan_signals: Statement[batches.ScannedIds]
    delete_signals: Statement[batches.Deleted]
    read_paths: Statement[step_data.ReadPathsRow]
    lock_steps_to_resolve: Statement[IdRow]
    resolve_steps: Statement[step_data.ResolvedStep]
    resolve_steps_counted: Statement[step_data.ResolvedStep]
    fail_slow_step: Statement[step_data.SlowStep]
    lock_stored_bytes: Statement[stored_bytes.HeldSums]
    try_lock_stored_bytes: Statement[stored_bytes.HeldSums]
    add_up_stored_bytes: Statement[stored_bytes.AddedUp]
    list_storing_owners: Statement[IdRow]
    recount_stored_bytes: Statement[stored_bytes.StoredSum]
    forget_stored_bytes: Statement[IdRow]
    read_stored_bytes: Statement[stored_bytes.StoredOfOwner]
    read_stored_with_copy: Statement[stored_bytes.StoredWithCopy]
    limit_lock_waits: Statement[submission.LockWait]
    submit_jobs: Statement[submission.SubmittedJob]
    submit_jobs_counted: Statement[submission.SubmittedJob]
    end_overdue_attempts: Statement[heartbeats.EndedAttempts]
    expire_jobs: Statement[sweep.SweptJobs]
    fail_unmatched_jobs: Statement[sweep.UnmatchedJobs]
    list_stale_attempts: Statement[sweep.StaleAttempt]
    count_stale_attempts: Statement[sweep.CountStaleAttemptsRow]
    read_tab_counts: Statement[tabs.TabCount]
    read_namespaces_of: Statement[tabs.NamespaceRow]
    release_taken_attempts: Statement[taken_attempts.ReleasedAttempt]
    find_due_triggers: Statement[triggers.DueTrigger]
    lock_unique_keys: Statement[unique_jobs.LockedKeys]
    find_open_duplicate: Statement[IdRow]
    find_recent_duplicate: Statement[IdRow]
    read_incidents: Statement[verdict.Incidents]
    read_cluster_figures: Statement[verdict.ClusterFigures]
    begin_waits: Statement[IdRow]
    end_due_waits: Statement[sweep.SweptJobs]
    end_signalled_waits: Statement[sweep.SweptJobs]
    settle_signals: Statement[IdRow]
    end_timed_out_waits: Statement[sweep.SweptJobs]
    answer_step: Statement[IdRow]
    read_waiting_answers: Statement[waits.WaitingAnswer]
