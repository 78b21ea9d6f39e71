"""How processes start, fail and end, from whichever engine or supervisor prints it."""

from __future__ import annotations

from pdctl.adapters.signs.sign import BEGIN, Sign

# The last line of a traceback, behind whatever a logger, compose ("name | ") or a container runtime
# ("TIME stderr F ") puts before it.
_RAISED = (
    r"(?:^|[\])|] |: |\bstd(?:out|err) [FP] |\.py:\d+[^A-Za-z]*)"
    r"(?P<type>(?:(?:[A-Za-z_]\w*\.)*[A-Z]|(?:[A-Za-z_]\w*\.)+[a-z])\w*{}\w*)(?:: (?P<message>.+))?$"
)

_SIGNAL = r"(?P<what>Segmentation fault|Aborted|Bus error|Floating.point exception|Illegal instruction)"

SIGNS = (
    Sign("start.ready", "The server is fired up and ready to roll"),
    Sign("start.ready", "Application startup complete"),
    Sign("start.ready", "Uvicorn running on"),
    Sign("start.group", "Init torch distributed begin"),
    Sign("start.group", "vLLM is using nccl=="),
    Sign("start.group", "distributed_init_method="),
    Sign(
        "start.group",
        "Waiting for",
        r"(?i)waiting for .*(?:core engine|local engine|remote|rank|node|process)",
    ),
    Sign("start.weights", "Load weight begin"),
    Sign("start.weights", "Starting to load model"),
    Sign("start.weights", "Loading safetensors checkpoint shards"),
    Sign("start.memory", "host memory for"),
    Sign("start.memory", "Mounting segment"),
    Sign("start.graphs", "Capture cuda graph begin"),
    Sign("start.graphs", "Capturing CUDA graph"),
    Sign("start.graphs", "torch.compile"),
    Sign("start.rank_host", "RayWorker", r"pid=\d+, ip=(?P<ip>[\d.]+)"),
    Sign("start.jit", "JIT Pre-Compile"),
    Sign("start.jit", "eepGEMM", r"(?i)compil|warmup|warm up"),
    Sign("process.traceback", "Traceback (most recent call last)"),
    Sign("process.raised", "Error", _RAISED.format("Error")),
    Sign("process.raised", "Exception", _RAISED.format("Exception")),
    Sign("process.raised", "panicked at", r"(?P<type>panicked) at (?P<message>.*)"),
    Sign("process.raised", "terminate called", r"(?P<type>terminate called) (?P<message>.*)"),
    Sign("process.place", 'File "', r'File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?'),
    Sign("process.asserted", "assert ", r"(?:^|[\])|:]|\bstd(?:out|err) [FP])\s+assert (?P<what>.+)"),
    Sign("process.fatal", "hit an exception"),
    Sign("process.fatal", "EngineCore encountered a fatal error"),
    Sign("process.fatal", "EngineCore failed to start"),
    Sign("process.fatal", "Engine core initialization failed"),
    Sign("process.fatal", "EngineDeadError"),
    Sign("process.fatal", "EngineCore died unexpectedly"),
    Sign("process.fatal", "died unexpectedly"),
    Sign("process.fatal", "Background loop has errored"),
    Sign("process.fatal", "Engine loop is dead"),
    Sign("process.fatal", "died, exit code"),
    Sign("process.fatal", "crashed with exit code"),
    Sign("process.fatal", "Received sigquit from a child"),
    Sign("process.fatal", "Fatal error during execution"),
    # faulthandler names the signal; with other words the interpreter gives up by itself.
    Sign("process.signal", "Fatal Python error", rf"Fatal Python error: {_SIGNAL}"),
    Sign("process.fatal", "Fatal Python error", rf"Fatal Python error: (?!{_SIGNAL})"),
    Sign("process.signal", "Caught signal", r"Caught signal \d+ \((?P<what>[A-Za-z ]+)"),
    Sign("process.signal", "Segfault encountered", r"(?P<what>Segfault)"),
    Sign("process.signal", "core dumped", rf"(?:{_SIGNAL} )?\(?core dumped"),
    Sign("process.signal", "Bus error", r"(?P<what>Bus error)"),
    Sign(
        "process.frame",
        ".so",
        rf"{BEGIN} *#?\d+ +(?:0x[0-9a-f]+ in )?"
        r"(?:\S*/)?(?P<library>lib[\w.-]+?\.so)\S*\((?P<function>[A-Za-z_]\w*)",
    ),
    # A frame of UCX's handler: "1 0x0000000000aef033 cublasLt_for_cublas_ZZZ()  ???:0"
    Sign(
        "process.symbol",
        " 0x",
        r"^\W*\d+ +0x[0-9a-f]+ (?P<function>(?!killpg|gsignal|raise|abort|__)[\w:<>~ ]+)\(",
    ),
    Sign("process.assertion", "ssert failed: ", BEGIN + r"F\d{4,8} .*[Aa]ssert failed: (?P<what>.+)"),
    Sign("process.assertion", "heck failed: ", BEGIN + r"F\d{4,8} .*[Cc]heck failed: (?P<what>.+)"),
    Sign("process.assertion", "Assertion `", r"Assertion `(?P<what>.+?)' failed"),
    Sign("process.unit_ended", "process exited, code=", r"code=(?P<how>\w+), status=(?P<status>[\w/]+)"),
    Sign("process.unit_ended", "exited with code", r"exited with code (?P<status>\d+)"),
    Sign("process.unit_ended", "Exit Code:", r"Exit Code:\s+(?P<status>\d+)"),
    Sign("process.oom_killed", "OOMKilled", r"OOMKilled(?!\"?\s*[:=]\s*\"?false)"),
    Sign("process.oom_killed", "killed by the OOM killer"),
    Sign("process.oom_killed", "node running low on memory"),
    Sign("process.oom_killed", "systemd-oomd", r"[Kk]illed"),
    Sign("process.oom_killed", "earlyoom", r"sending SIG"),
    Sign("process.oom_killed", "oom_kill ", r"^oom_kill [1-9]"),
    Sign("process.oom_killed", "oom-kill", r"(?i)result:? '?oom-kill"),
    Sign("process.probe_failed", "iveness probe failed"),
    Sign("process.probe_failed", "failed liveness probe"),
    Sign("process.probe_failed", "ealth check failed, will be restarted"),
    Sign(
        "process.no_library",
        "cannot open shared object file",
        r"(?P<what>lib[\w.+-]+): cannot open shared object",
    ),
    Sign("process.no_library", "undefined symbol", r"(?P<what>undefined symbol: \S+)"),
    Sign("process.no_library", "No module named", r"No module named '?(?P<what>[\w.]+)"),
    Sign("process.no_library", "not found (required by", r"version [`'](?P<what>\w+)' not found"),
    Sign("process.start_timeout", "operation timed out", r"(?i)start(?:-pre|-post)? operation timed out"),
    Sign("process.start_timeout", "tartup probe failed"),
    Sign(
        "process.start_timeout",
        "Timed out waiting for",
        r"(?i)(?:server|engine|model|worker)s? .*(?:ready|start)",
    ),
    Sign("process.bad_flag", "unrecognized arguments", r"unrecognized arguments: (?P<what>.*)"),
    Sign("process.bad_flag", "invalid choice", r"argument (?P<what>.*invalid choice.*)"),
    Sign("process.bad_flag", "unexpected argument", r"unexpected argument '(?P<what>[^']*)'"),
    # vLLM names the error at every start where it may not raise the limit.
    Sign("process.no_files", "Too many open files", r"^(?!.*can cause fd limit errors)"),
    Sign("process.no_threads", "can't start new thread"),
    # Not a socket's: "[Service thread] Accept failed Resource temporarily unavailable" is NCCL's teardown.
    Sign(
        "process.no_threads",
        "Resource temporarily unavailable",
        r"(?i)fork|pthread_create|(?:start|creat|spawn)\w*[^:]{0,20}thread|thread[^:]{0,20}(?:start|creat|spawn)",
    ),
    Sign(
        "process.gpu_memory_taken",
        "Free memory on device",
        r"\((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\).*?\((?P<share>[\d.]+), (?P<wanted>[\d.]+) GiB\)",
    ),
    Sign("process.gpu_memory_taken", "Not enough memory. Please try to increase --mem-fraction-static"),
    Sign("process.gpu_memory_taken", "memory capacity is unbalanced"),
)
