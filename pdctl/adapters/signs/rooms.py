"""Lines of any engine, connector or router about one request's hand-over, and about an engine's life."""

from __future__ import annotations

from pdctl.adapters.signs.sign import Sign

_MOVE = r"\b(?:transfer|pull|send|sent|receiv|recv|load|handshake)\w*\b"
_WRONG = r"\b(?:fail|error|timed out)"
_KV_FAILED = (
    r"(?i)^(?!.*metrics)(?!.*args)(?!.*relax the timeout)(?:"
    rf".*\bkv\b.{{0,40}}{_MOVE}.{{0,60}}{_WRONG}|.*{_MOVE}.{{0,30}}\bkv(?:\b|_).{{0,60}}{_WRONG}|"
    rf".*(?:fail\w*|error)\b.{{0,40}}{_MOVE}.{{0,20}}\bkv\b|"
    rf".*\b(?:mooncake|nixl|p2p|adxl|llm_?datadist)\b.{{0,60}}\btransfer\w*\b.{{0,60}}{_WRONG})"
)

SIGNS = (
    Sign("room.kv_failed", "fail", _KV_FAILED),
    Sign("room.kv_failed", "Fail", _KV_FAILED),
    Sign("room.kv_failed", "rror", _KV_FAILED),
    Sign("room.kv_failed", "imed out", _KV_FAILED),
    Sign("room.kv_failed", "KVReceiver Exception"),
    Sign("room.kv_failed", "rror in kv cache transfer for"),
    Sign("room.kv_failed", "Failed to complete transfer"),
    Sign("room.kv_failed", "batch_transfer_sync", r"(?i)fail|error|timed out|ret(?:urn)?\w*[ =:]*-\d"),
    Sign(
        "room.length_and_empty",
        "finish_reason",
        r"(?=.*finish_reason['\"]?\s*[:=]\s*(?:\{.*?)?['\"]length['\"])"
        r"(?=.*completion_tokens['\"]?\s*[:=]\s*[01]\b)",
    ),
    Sign("cache.stored", "LMCache INFO: ", r"(?:Stored|Storing KV cache for) [1-9]\d* out of"),
    Sign("cache.looked_up", "LMCache hit tokens", r"otal tokens [1-9]\d*,.*LMCache hit tokens: (?P<hit>\d+)"),
    Sign("cache.no_seed", "PYTHONHASHSEED not set"),
    Sign("transfer.no_buffer", "Failed to allocate memory object"),
    Sign("transfer.no_buffer", "Cannot assign cache transfer buffer"),
    Sign("transfer.pool_full", "Insufficient memory", r"^.*Error: Insufficient memory$"),
    Sign("router.prefill_failed", "prefill_request_failed"),
    Sign(
        "router.prefill_failed",
        "refill",
        r"(?i)\bprefill\b.{0,30}\b(?:request|leg|call|server|worker)\b.{0,40}(?:fail|error"
        r"|HTTP [45]\d\d|status\W+[45]\d\d)",
    ),
    Sign("room.register_failed", "failed to register to bootstrap"),
    Sign("room.not_registered", "not fully registered yet"),
    Sign("router.stream_error", "Stream error from decode server"),
    Sign("http.client_error", 'HTTP/1.1" 4', r'"POST (?P<path>\S+) HTTP/1\.1" (?P<status>4\d\d)'),
    Sign("http.server_error", 'HTTP/1.1" 5', r'"POST (?P<path>\S+) HTTP/1\.1" (?P<status>5\d\d)'),
    Sign("memory.oom", "out of memory", r"^(?!.*Decode out of memory happened)"),
    Sign("memory.oom", "OutOfMemoryError", r"^(?!.*out of memory)"),
    Sign(
        "memory.rank",
        "mem",
        r"(?i)(?P<kind>non[- ]torch|avail(?:able)?|free)(?: gpu)?[ _]mem\w*[ =:]+"
        r"(?P<gib>\d+(?:\.\d+)?) ?Gi?B",
    ),
    Sign("life.start", "pdctl.engine", r"pdctl\.engine: .* incarnation [0-9a-f]{16}$"),
    Sign("life.begun", "[keeper]", r"\[keeper\] \S+ started as pid \d+"),
    Sign("life.ended", "[keeper]", r"\[keeper\] \S+: ended (?P<how>by signal \d+|with exit code \d+)"),
    Sign("life.start", "server_args=ServerArgs("),
    Sign("life.start", "vLLM API server version"),
    Sign("life.start", "Initializing a V1 LLM engine"),
    Sign("life.start", "TensorRT LLM version"),
    Sign("life.stop", "SIGTERM", r"^(?!.*closing signal)"),
    Sign("life.stop", "signal 15"),
    Sign("life.stop", "raceful", r"(?i)graceful(?:ly)?[ _-]?(?:shut|exit|stop|terminat)"),
)
