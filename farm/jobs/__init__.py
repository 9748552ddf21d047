"""Which jobs run on which board: leases, health, batches, and what became of each job."""
