-- A live job is taken from its worker and waits again.
with {{interrupt_held}},
{{settle}}
{{each}}
