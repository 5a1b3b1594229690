-- Recover the live attempts of lost servers.
with {{lost}},
{{settle}}
{{counted}}
