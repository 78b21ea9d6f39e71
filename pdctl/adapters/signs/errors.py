"""Lines that their writers call errors, whatever they say: what is left to quote where no other sign fits."""

from __future__ import annotations

from pdctl.adapters.signs.sign import BEGIN, Sign

_DID_NOT = r"(?i:fail|error|cannot|unable|non-zero status|invalid|abort|no such|denied|refused)"

_TRACEBACK = r"(?:Traceback \(most recent call last|\.py:\d+\]\s{2,}\S|File \"[^\"]+\", line \d+)"

SIGNS = (
    # What the bundled engine logs as an error, its own state and counters say too. A traceback that is logged
    # line by line is one error: the line that ends it.
    Sign("log.error", "ERROR", rf"^(?!.*{_TRACEBACK}).*\bERROR\b(?!_)(?! pdctl\.)"),
    Sign("log.error", '"error"', r'"(?:level|severity)": ?"error"'),
    Sign("log.error", "level=error"),
    Sign("log.error", "[TRT-LLM]", r"\[TRT-LLM\](?: \[RANK \d+\])? \[E\] (?!Traceback)"),
    Sign("log.error", "Failed: "),
    # Native libraries without a logger: file and line, and what did not work.
    *(
        Sign("log.native", key, rf"{BEGIN}\S*{key.replace('.', '[.]')}\d+:? .*{_DID_NOT}")
        for key in (".cpp:", ".cc:", ".cu:", ".c:", ".h:")
    ),
    Sign("log.error", ".cpp:", rf"{BEGIN}E(?:\d{{4}}|\d{{8}}) \d\d:\d\d:\d\d"),
    Sign("log.error", ".cc:", rf"{BEGIN}E(?:\d{{4}}|\d{{8}}) \d\d:\d\d:\d\d"),
)
