"""A stream that began on another engine goes on here: prompt and earlier tokens are prefilled together.

To the group it is a longer prompt and fewer tokens to generate; positions stay what they were, so greedy
and seeded sampling go on as they would have.
"""

from __future__ import annotations

from msgspec.structs import replace

from engine.api.schema import Resumable
from engine.core.types import Request
from engine.http.errors import ParamError

_FIELD = "resumable.tokens"


def continued(request: Request, resumable: Resumable | None, stream: bool, vocab: int) -> Request:
    """The request that goes on after the earlier tokens; ParamError where they cannot be its output."""
    earlier = [] if resumable is None else resumable.tokens
    if not earlier:
        return request
    sampling = request.sampling
    if not stream:
        raise ParamError(_FIELD, "Only a stream can go on after earlier tokens.")
    if (largest := max(earlier)) >= vocab:
        raise ParamError(_FIELD, f"Token id {largest} is not in the vocabulary of {vocab}.")
    if len(earlier) >= sampling.max_tokens:
        message = f"{len(earlier)} earlier tokens leave nothing to generate of {sampling.max_tokens}."
        raise ParamError(_FIELD, message)
    if ends := set(earlier).intersection(sampling.stop_token_ids):
        raise ParamError(_FIELD, f"Token id {min(ends)} ends the output, so nothing follows it.")
    left = replace(sampling, max_tokens=sampling.max_tokens - len(earlier))
    return replace(request, prompt=request.prompt + earlier, sampling=left, earlier=len(earlier))
