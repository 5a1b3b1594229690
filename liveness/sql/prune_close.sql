-- Events are append-only again, even where the transaction goes on.
select set_config('controlplane.retention', 'off', true)
