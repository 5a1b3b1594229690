"""The ground that everything stands on: statements, settings, transactions, errors. Servers and jobs are not known."""
