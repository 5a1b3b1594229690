"""The statements of the books here. Written by `python -m controlplane.core.sql_rows`."""

from controlplane.core.statements import IdRow, Statement, Statements
from liveness.sql.rows import (
    detection,
    failover,
    heartbeats,
    partitions,
    registration,
    restoration,
    retention,
    selectors,
    sign_ins,
    timetable,
    tokens,
)


class LivenessStatements(Statements):
    advance_clock: Statement[detection.AdvancedClock]
    list_stale_workers: Statement[detection.StaleWorker]
    list_newly_stale_servers: Statement[detection.StaleServer]
    read_observed_time: Statement[detection.ReadObservedTimeRow]
    judge_brake: Statement[detection.JudgedBrake]
    disconnect_silent_servers: Statement[detection.DisconnectedServer]
    deactivate_servers: Statement[detection.DeactivateServersRow]
    end_expired_maintenance: Statement[detection.EndExpiredMaintenanceRow]
    end_expired_cordons: Statement[detection.UncordonedServer]
    note_check_finished: Statement[detection.NoteCheckFinishedRow]
    fold_tallies: Statement[detection.FoldTalliesRow]
    compare_timeline: Statement[failover.CompareTimelineRow]
    lock_timelines: Statement[failover.LockTimelinesRow]
    note_timeline: Statement[failover.NotedTimeline]
    forget_unheard_servers: Statement[failover.ForgetUnheardServersRow]
    record_server_heartbeat: Statement[heartbeats.HeardServer]
    read_ended_server: Statement[heartbeats.HeardServer]
    read_fence: Statement[heartbeats.ReadFenceRow]
    count_own_events: Statement[heartbeats.CountOwnEventsRow]
    read_heartbeat_age: Statement[heartbeats.HeartbeatAge]
    list_partitions: Statement[partitions.Partition]
    list_days_to_come: Statement[partitions.Day]
    count_default_rows: Statement[partitions.DefaultPartition]
    register_server: Statement[registration.RegistrationRow]
    lock_registrar: Statement[IdRow]
    move_clock: Statement[restoration.MoveClockRow]
    note_row_left_out: Statement[retention.NoteRowLeftOutRow]
    allow_event_deletion: Statement[retention.AllowEventDeletionRow]
    scan_events: Statement[retention.ScannedRange]
    delete_events: Statement[retention.DeletedRecords]
    forbid_event_deletion: Statement[retention.ForbidEventDeletionRow]
    list_facets: Statement[selectors.ServerFacets]
    list_rows_left_out: Statement[selectors.ListRowsLeftOutRow]
    list_maintenances: Statement[selectors.ListMaintenancesRow]
    read_events_horizon: Statement[selectors.ReadEventsHorizonRow]
    list_own_outages: Statement[selectors.OwnOutage]
    list_beats_with_outages: Statement[selectors.BeatOrOutage]
    lock_sign_ins_of_address: Statement[sign_ins.LockSignInsOfAddressRow]
    count_sign_in: Statement[sign_ins.CountSignInRow]
    begin_task: Statement[timetable.BeginTaskRow]
    find_api_token: Statement[tokens.FoundToken]
