"""TensorRT-LLM's lines about context and generation servers."""

from __future__ import annotations

from pdctl.adapters.signs.sign import Sign

SIGNS = (
    Sign("trtllm.context_wait", "Timed out waiting for context KV cache transfer", r"after (?P<ms>\d+)"),
    Sign("trtllm.sequence_gone", "Can not find sequence for request"),
    Sign("trtllm.timer_ended", "due to KV cache transfer timeout"),
    Sign("trtllm.block_evicted", "Couldn't find the requested block in the reuse tree"),
    Sign(
        "trtllm.scheduled",
        "active_requests",
        r"(?P<active>\d+) active_requests?\D+scheduled (?P<scheduled>\d+)",
    ),
    Sign("trtllm.small_buffer", "bufferCoverTargetNum", r"will fail"),
    Sign("trtllm.waits_receive", "checkGenTransferStatus"),
)
