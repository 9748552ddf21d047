"""The forms of a device file's texts that become arguments of a compiler or an emulator."""

WORD = r"\w[\w.+-]*"
_NAME = r"[a-z0-9][a-z0-9.+_-]*"
_FEATURES = (
    *("mmx", "sse", "sse2", "sse3", "ssse3", r"sse4\.1", r"sse4\.2", "popcnt", "avx", "avx2"),
    *(
        "fma",
        "f16c",
        "bmi",
        "bmi2",
        "lzcnt",
        "movbe",
        "avx512[a-z0-9]+",
        "avxvnni",
        "amx-[a-z0-9]+",
    ),
    *("neon", "thumb", "arm", "hvx", "hvx-length=(?:64|128)[bB]", "v[0-9]{2}", "strict-align"),
    *("unaligned-access", "outline-atomics"),
)
_FLAGS = (
    rf"-m(?:arch|cpu|tune|fpu|abi)={_NAME}",
    r"-mfloat-abi=(?:soft|softfp|hard)",
    r"-mprefer-vector-width=(?:128|256|512|none)",
    rf"-m(?:no-)?(?:{'|'.join(_FEATURES)})",
    r"-O[0-3sz]",
    r"-f(?:no-)?(?:omit-frame-pointer|vectorize|slp-vectorize)",
)
FLAG = "|".join(_FLAGS)
"""Compiler flags for processor and optimization; no others are allowed."""
