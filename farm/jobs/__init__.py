"""Jobs on boards: leases, health, batches, and verdicts."""
