"""No secret is in a document, and what only looks like one is left alone."""

from __future__ import annotations

import json

import pytest

from pdctl.bundle.scrub import scrub


@pytest.mark.parametrize(
    "line",
    [
        "Authorization: Bearer abc.def-0123456789",
        'headers={"authorization": "Bearer abc.def-0123456789"}',
        "server_args=ServerArgs(model_path='/m', api_key='abc.def-0123456789', port=1)",
        "python -m sglang.launch_server --api-key abc.def-0123456789 --port 1",
        "python -m vllm --api-key=abc.def-0123456789",
        '{"admin_api_key": "abc.def-0123456789", "port": 1}',
        "HF_TOKEN=abc.def-0123456789",
        "loading with hf_abcdefghijklmnop0123456789",
        "the fleet's own abc.def-0123456789 stands here",
        "non-default args: {'api_key': ['abc.def-0123456789', 'b-0123456789'], 'port': 1}",
        "vllm serve m --api-key abc.def-0123456789 b-0123456789 --port 1",
        "aws_session_token=abc.def-0123456789",
        '{"token": "abc.def-0123456789"}',
        "GET /v1/models?token=abc.def-0123456789&x=1",
        "Authorization: Token abc.def-0123456789",
        "Cookie: session=abc.def-0123456789",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow0123456789\nabc\n-----END RSA PRIVATE KEY-----",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx0123456789.abcDEFghiJKL",
        "connecting to nats://abc.def-0123456789@10.0.0.1:4222",
        "https://store/x?X-Amz-Signature=abc.def-0123456789",
    ],
)
def test_a_secret_is_masked(line: str) -> None:
    found = scrub(line, ["abc.def-0123456789"] if "own" in line else [])
    assert "0123456789" not in found and "***" in found, found


@pytest.mark.parametrize(
    "line",
    [
        "Decode batch, #running-req: 4, #token: 812, token usage: 0.37, gen throughput (token/s): 91.2",
        "server_args=ServerArgs(api_key=None, admin_api_key=None, tokenizer_path='/m')",
        '{"api_key": null, "skip_tokenizer_init": false}',
        "--tokenizer-path /models/m --max-total-tokens 4096",
        "PD_FLEET_TOKEN_FILE=/opt/pdctl/env/token",
        "HF_TOKEN=secret sha256:0123456789ab",
        "[rank0] Grammar accept_token failed for req 3f2a with token 128009, #new-token: 8192",
        '{"token": 128009, "eos_token": "</s>", "api_key": []}',
        "authentication of the link failed: another fleet token",
    ],
)
def test_what_is_no_secret_stays(line: str) -> None:
    assert scrub(line) == line


def test_json_stays_json() -> None:
    said = {
        "api_key": "k-0123456789",
        "token": ["k-0123456789"],
        "none": {"api_key": None},
        "password": "x y",
        "port": 3,
    }
    assert json.loads(scrub(json.dumps(said)))["port"] == 3
