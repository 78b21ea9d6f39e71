"""`python -m tests.kernels.gpu`: the cases on this machine's GPU, and times of what is right.

Nothing is timed before it is correct. Decode attention is set beside torch's own and beside the time that
reading its keys and values takes at the bandwidth that a copy reaches here.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from engine.parallel.comm import Comm
from engine.runner import ModelRunner, Tuning
from kernels.ops.splits import SplitPlan, SplitWorkspace
from kernels.streams import MAIN
from kernels.streams.cuda import CudaStreams
from tests.engine.runner.streamed import played_wrong
from tests.kernels.cases.case import Stage
from tests.kernels.cases.table import CASES

SHAPES = ((1, 1024), (1, 32768), (16, 4096), (64, 1024))  # rows, tokens
HEADS, KV_HEADS, DIM, PAGE = 32, 8, 128, 16
SMALL = {"vocab_size": 512, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3} | {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 2048,
}
MODELS = {"llama": (LlamaForCausalLM, LlamaConfig), "qwen3": (Qwen3ForCausalLM, Qwen3Config)}


def wrong() -> list[str]:
    """Cases that fail here, with what they say."""
    device, problems = torch.device("cuda"), []
    for op, cases in CASES.items():
        stage = Stage(importlib.import_module(f"kernels.ops.{op}.kernel"), device)
        for case in cases():
            try:
                case.play(stage)
                torch.cuda.synchronize()
            except Exception as error:
                problems.append(f"{op}: {case.name}: {error}")
    return problems


def streams_wrong() -> list[str]:
    """A captured step with a side stream, replayed: its answer is that of the same step in order."""
    x, out = torch.zeros(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")
    side = torch.zeros_like(x)
    streams = CudaStreams(("side",))

    def step() -> None:
        streams.fork(MAIN, "side")
        streams.launch("side", "triple", lambda: torch.mul(x, 3, out=side), [x], [side])
        streams.launch(MAIN, "double", lambda: torch.mul(x, 2, out=out), [x], [out])
        streams.join(MAIN, "side")
        streams.launch(MAIN, "add", lambda: out.add_(side), [side], [out])

    step()
    torch.cuda.synchronize()
    play = streams.capture(step)
    for value in (1.0, 2.0, 7.0):
        x.fill_(value)
        play()
        torch.cuda.synchronize()
        if not bool((out == 5 * value).all()):
            return [f"streams: a replayed step gives {float(out[0])} instead of {5 * value}"]
    return []


def captured_wrong() -> list[str]:
    """Decode steps of whole models, captured, beside eager ones; at both ends of each knob of theirs."""
    problems = []
    for name, (make, config) in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            torch.manual_seed(3)
            make(config(**SMALL)).save_pretrained(folder)
            for dtype, near in (("float32", 1e-5), ("bfloat16", 1e-2)):
                for overlap, target in ((True, 1 << 16), (False, 1 << 16), (True, 1)):
                    tuning = Tuning(target, overlap, max_running=5)
                    eager, played = (_runner(Path(folder), dtype, tuning) for _ in range(2))
                    said = played_wrong(eager, played, near)
                    if said:
                        problems.append(f"captured {name} {dtype}, overlap {overlap}, {target} CTAs: {said}")
    return problems


def _runner(folder: Path, dtype: str, tuning: Tuning) -> ModelRunner:
    pool = {"page_size": 16, "pages": 48}
    rank = {"rank": 0, "tp": 1, "comm": Comm(0, 1)}
    return ModelRunner(folder, dtype=dtype, device="cuda", tuning=tuning, **rank, **pool)  # type: ignore[arg-type]


def milliseconds(call: Callable[[], object]) -> float:
    """The median of 20, with a cold start before."""
    call()
    times = []
    for _ in range(20):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def bandwidth() -> float:
    """Bytes a millisecond that a large copy reads and writes."""
    source = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / milliseconds(lambda: target.copy_(source))


def decode_row(rows: int, tokens: int, by_ms: float) -> str:
    kernel = importlib.import_module("kernels.ops.paged_decode_attention.kernel")
    count = tokens // PAGE
    pool = torch.randn(rows * count, KV_HEADS, 1, 2, PAGE, DIM, dtype=torch.bfloat16, device="cuda")
    q = torch.randn(rows, HEADS, DIM, dtype=torch.bfloat16, device="cuda")
    pages = [list(range(i * count, (i + 1) * count)) for i in range(rows)]
    split = SplitPlan.of(
        max_batch=rows, heads=HEADS, kv_heads=KV_HEADS, dim=DIM, max_tokens=max(tokens, 131072)
    )
    plan = kernel.plan_decode(pool, pages, [tokens] * rows, SplitWorkspace(split, "cuda"))
    kv = pool.view(rows, count, KV_HEADS, 2, PAGE, DIM).permute(3, 0, 2, 1, 4, 5).flatten(3, 4).contiguous()

    def ours() -> torch.Tensor:
        return kernel.paged_decode_attention(q, pool, 0, plan, DIM**-0.5)  # type: ignore[no-any-return]

    def torchs() -> torch.Tensor:
        return F.scaled_dot_product_attention(q.unsqueeze(2), kv[0], kv[1], enable_gqa=True).squeeze(2)

    error = float((ours().float() - torchs().float()).abs().max())
    if not error < 0.02:
        return f"{rows:5} {tokens:7}   wrong by {error:.3g}, not timed"
    floor = pool.nbytes / by_ms
    mine, other = milliseconds(ours), milliseconds(torchs)
    return f"{rows:5} {tokens:7} {mine:10.4f} {other:10.4f} {floor:10.4f} {floor / mine:8.0%}"


def main() -> int:
    if not torch.cuda.is_available():
        print("no CUDA device here: nothing was run. The kernels were neither checked nor timed on a GPU.")
        return 0
    print(torch.cuda.get_device_name(), "sm_{}{}".format(*torch.cuda.get_device_capability()))
    problems = wrong() + streams_wrong() + captured_wrong()
    for problem in problems:
        print(problem)
    if problems:
        print(f"{len(problems)} cases fail; nothing is timed")
        return 1
    by_ms = bandwidth()
    print(f"all cases pass. Decode attention, {HEADS}/{KV_HEADS} heads of {DIM}, bfloat16, milliseconds:")
    print(f"{'rows':>5} {'tokens':>7} {'kernel':>10} {'torch':>10} {'reading':>10} {'reached':>8}")
    for rows, tokens in SHAPES:
        print(decode_row(rows, tokens, by_ms))
    return 0


if __name__ == "__main__":
    sys.exit(main())
