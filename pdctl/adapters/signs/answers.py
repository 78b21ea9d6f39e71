"""What somebody who compares answers or bytes has seen, and lines of engines that doubt their own KV."""

from __future__ import annotations

from pdctl.adapters.signs.sign import Sign

_SHARE = r"(?:0?\.\d+|1\.0)"

SIGNS = (
    Sign("answer.accuracy", "ccuracy", r"(?i)accuracy[\"=: |]+(?P<value>[\d.]+)(?P<percent> ?%)?"),
    *(
        Sign("answer.accuracy", key, rf"{key}\b.*?: (?P<value>{_SHARE})\b(?:.*?: (?P<other>{_SHARE})\b)?")
        for key in (
            "GSM8K",
            "gsm8k",
            "GPQA",
            "gpqa",
            "MMLU",
            "mmlu",
            "AIME",
            "aime",
            "HumanEval",
            "humaneval",
        )
    ),
    Sign("answer.accuracy", "exact_match", r"exact_match.*?\|\s*(?P<value>0?\.\d+|1\.0+)"),
    Sign("answer.differs", "olden", r"(?i)golden.*(?:differ|mismatch|diverge|wrong|fail)"),
    Sign("answer.differs", "iverge", r"(?i)diverge.*(?:token|output|answer|reference|monolith)"),
    Sign("answer.differs", "mismatch", r"(?i)(?:output|token|answer|response|logprob)s? (?:\w+ )?mismatch"),
    Sign(
        "answer.differs",
        "arbage",
        r"(?i)^(?!.*garbage.?collect).*(?:output|answer|text|token|response|completion)",
    ),
    Sign("answer.differs", "ibberish"),
    Sign("answer.differs", "onsense"),
    Sign("answer.differs", "rong ", r"(?i)wrong (?:answer|output|token|result)s?\b"),
    Sign("answer.differs", "ncorrect ", r"(?i)incorrect (?:answer|output|token|result)s?\b"),
    Sign("answer.differs", "ccuracy ", r"(?i)accuracy (?:drop|fall|degrad|collaps|decay|decreas)"),
    Sign(
        "answer.differs",
        "epeat",
        r"(?i)(?:same|one|repeat\w*) token|repeated (?:text|output)|token .*repeated",
    ),
    Sign(
        "answer.differs",
        "orrupt",
        r"(?i)corrupt\w* (?:output|answer|token|text|completion|response|iteration|KV)"
        r"|(?:output|KV|answer|iteration)s? .*corrupt",
    ),
    Sign("answer.differs", "!!!!!!!!", r"(?:output|text|content|completion)"),
    Sign(
        "answer.bytes_differ",
        "mismatch",
        r"(?i)^(?!.*compatib)(?:.*(?:hash|checksum|crc|digest|sha256).*mismatch|"
        r".*mismatch.*(?:hash|checksum|crc|digest))",
    ),
    Sign("answer.bytes_differ", "hash", r"(?i)src.*hash.*dst.*(?:differ|!=)|hash.*(?:differ|!=)"),
    Sign("answer.wrong_room", "Context corruption detected"),
    Sign("answer.nan", "probability tensor contains either"),
    Sign(
        "answer.nan", "NaN", r"(?i)nan in (?:the )?(?:logits|output|hidden|kv)|(?:logits|output|hidden).* nan"
    ),
    Sign(
        "answer.too_long",
        "longer than",
        r"(?P<tokens>\d{3,})\s*(?:tokens)?\)?.*longer than.*?(?P<limit>\d{3,})",
    ),
    Sign(
        "answer.too_long",
        "exceeds the maximum",
        r"(?P<tokens>\d{3,})\D+exceeds the maximum\D+(?P<limit>\d{3,})",
    ),
    Sign("answer.short_prompt", "prompt_tokens", r"prompt_tokens[\"']?[=: ]+1\b(?!\d)"),
    Sign("gpu.illegal_access", "illegal memory access"),
    Sign("gpu.illegal_access", "cudaErrorIllegalAddress"),
    Sign("gpu.illegal_access", "CUDA_ERROR_ILLEGAL_ADDRESS"),
)
