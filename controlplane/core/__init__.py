"""Code that both apps share: SQL statements, settings, transactions, errors. It knows neither servers nor jobs."""
