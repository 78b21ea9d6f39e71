"""Rules over facts: findings, their order, and the ledger of who holds which request."""
