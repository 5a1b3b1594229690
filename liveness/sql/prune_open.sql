-- From here to prune_close, or to the end of the transaction, the trigger lets events go.
select set_config('controlplane.retention', 'on', true)
