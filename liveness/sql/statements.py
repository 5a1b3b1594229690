"""The statements of the books here. Written by `python -m controlplane.core.sql_rows`."""

from controlplane.core.statements import Statement, Statements
from liveness.sql import rows


class LivenessStatements(Statements):
    advance_clock: Statement[rows.AdvancedClock]
    read_observed_time: Statement[rows.ReadObservedTimeRow]
    judge_brake: Statement[rows.JudgedBrake]
    disconnect_silent_servers: Statement[rows.DisconnectedServer]
    deactivate_servers: Statement[rows.DeactivateServersRow]
    end_expired_maintenance: Statement[rows.EndExpiredMaintenanceRow]
    end_expired_cordons: Statement[rows.UncordonedServer]
    note_check_finished: Statement[rows.NoteCheckFinishedRow]
    fold_tallies: Statement[rows.FoldTalliesRow]
    record_server_heartbeat: Statement[rows.HeardServer]
    read_ended_server: Statement[rows.HeardServer]
    read_fence: Statement[rows.ReadFenceRow]
    register_server: Statement[rows.RegisteredServer]
    lock_registrar: Statement[rows.IdRow]
    move_clock: Statement[rows.MoveClockRow]
    note_row_left_out: Statement[rows.NoteRowLeftOutRow]
    allow_event_deletion: Statement[rows.AllowEventDeletionRow]
    scan_events: Statement[rows.ScannedNumbers]
    delete_events: Statement[rows.Deleted]
    forbid_event_deletion: Statement[rows.ForbidEventDeletionRow]
    scan_heartbeats: Statement[rows.ScannedNumbers]
    delete_heartbeats: Statement[rows.Deleted]
    list_facets: Statement[rows.ServerFacets]
    list_rows_left_out: Statement[rows.ListRowsLeftOutRow]
    list_maintenances: Statement[rows.ListMaintenancesRow]
    read_events_horizon: Statement[rows.ReadEventsHorizonRow]
    lock_sign_ins_of_address: Statement[rows.LockSignInsOfAddressRow]
    count_sign_in: Statement[rows.CountSignInRow]
    begin_task: Statement[rows.BeginTaskRow]
