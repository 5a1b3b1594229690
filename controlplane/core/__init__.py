"""Code that both apps share, such as SQL statements, settings, transactions and errors. It depends on neither app."""
