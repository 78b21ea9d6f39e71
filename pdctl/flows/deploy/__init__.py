"""Deploy and rollback: look, plan in steps, run them by cell, gate, go back."""
