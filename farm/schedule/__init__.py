"""Who may use which board, which jobs wait, and what became of each."""
