"""Whether a prefill and a decode fit together, in the words of whichever engine finds that they do not."""

from __future__ import annotations

from pdctl.adapters.signs.sign import Sign

# An error that names both sides and says that they differ.
_SIDES = (
    r"(?i)^(?=.*(?:error|assert|exception|invalid|refus|reject))"
    r"(?=.*(?:\bprefill\w*\b.*\bdecode|\bdecode\w*\b.*\bprefill|\bremote\b.*\blocal|\blocal\b.*\bremote|"
    r"\bcontext\b.*\bgeneration\b|\bctx\b.*\bgen\b))(?!.*compatibility hash)"
)

SIGNS = (
    Sign(
        "pair.page_size",
        "age size mismatch",
        r"decode\D+page_size=(?P<decode>\d+).*prefill\D+page_size=(?P<prefill>\d+)",
    ),
    Sign("pair.page_size", "lock size mismatch", r"^(?!.*[Pp]hysical)"),
    Sign("pair.page_size", "ifferent block size", r"(?i)prefill|decode|remote|nixl"),
    Sign(
        "pair.kv_dtype",
        "mismatch",
        r"(?i)kv[_ ]?(?:cache)?[_ ]?d?type mismatch(?:.*decode\W+\w* ?\w*=(?P<decode>\w+))?",
    ),
    Sign("pair.tp", "PD Disaggregation does NOT support"),
    Sign("pair.tp", "assert remote_", r"assert remote_(?:tp|pp|dp)\w* *[=<>!]"),
    Sign("pair.tp", "eterogeneous TP", r"(?i)not|expect|require|unsupported|only"),
    Sign("pair.tp", "ifferent TP", r"(?i)not support|unsupported|only"),
    Sign("pair.tp", "Remote P worker KV layer cache must be of shape"),
    Sign("pair.tp", "_validate_remote_agent_handshake", r"(?i)assert|error"),
    Sign("pair.tp", "_init_hetero_tp_prep_handle"),  # in a traceback: SGLang's descriptors for unequal TP
    Sign(
        "pair.tp",
        "tp_size",
        r"(?i)(?:not support|unsupported|must be (?:equal|the same)).*(?:prefill|decode)",
    ),
    Sign(
        "pair.blocks",
        "num_remote_blocks",
        r"num_remote_blocks\D+(?P<remote>\d+)(?:.*num_local_blocks\D+(?P<local>\d+))?",
    ),
    Sign("pair.blocks", "dst_num_blocks[engine_id] == nixl_agent_meta.num_blocks"),
    Sign("pair.physical", "hysical block", r"(?i)mismatch|differ|!=|not equal|unequal|vs\b|expected"),
    Sign("pair.physical", "block_len", r"(?i)assert|mismatch|differ|!="),
    Sign("pair.unfit", "ismatch", _SIDES),
    Sign("pair.unfit", "must be ", _SIDES + r".*must be (?:equal|the same|identical|divisible|a multiple)"),
    Sign("pair.unfit", "must match", _SIDES),
    Sign("pair.unfit", "ncompatible", _SIDES),
    Sign("pair.unfit", "not support", _SIDES),
    Sign("pair.handshake", "handshake_failed"),
    Sign("pair.handshake", "handshake_setup_failed"),
    Sign("pair.handshake", "Decode handshake failed"),
    Sign("pair.engine_id", "ngine ID mismatch"),
    Sign("pair.engine_id", "ngine_id mismatch"),
    Sign("pair.dp_rank", "dp_rank", r"dispatched to dp_rank \d+ but .*implies dp_rank \d+"),
    Sign("pair.dp_rank", "prefill_port_table", r"KeyError"),
    Sign("pair.null_remote", "remote_engine_id", r"remote_engine_id['\"]?\s*[:=]\s*(?:null|None)\b"),
    Sign(
        "kv.key_sent",
        "tensor_id",
        r"(?i)\b(?:put|send|sent|sending)\b.{0,20}tensor_id\W+(?P<key>[^\s,'\"]{8,})",
    ),
    Sign(
        "kv.key_wanted",
        "tensor_id",
        r"(?i)\b(?:recv|get|wait(?:ing)?|receiv\w+)\b.{0,24}tensor_id\W+(?P<key>[^\s,'\"]{8,})",
    ),
    Sign(
        "kv.key_wanted",
        "ey not found",
        r"(?i)(?:kv|tensor|block|object).{0,30}key not found\W+(?P<key>[^\s,'\"]{8,})",
    ),
    Sign("pair.waits_remote", "is still in WAITING_FOR_REMOTE_KVS state"),
)
