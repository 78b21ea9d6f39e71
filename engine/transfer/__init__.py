"""Moving KV from prefill to decode: the link between leaders, the agents of ranks, rooms and deadlines."""
