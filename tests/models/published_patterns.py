"""Patterns by which published byte-level tokenizers split a text, each the pieces of the last."""

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_NEWER = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}%s]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}%s]"


def _cased(without: str, contraction: str, others: str) -> str:
    """Return words that begin at an upper-case letter, then numbers, others and spaces."""
    upper, lower, before = _UPPER % without, _LOWER % without, r"[^\r\n\p{L}\p{N}]?"
    words = f"{before}{upper}*{lower}+{contraction}|{before}{upper}+{lower}*{contraction}"
    return f"{words}|{others}|{_SPACES}"


GPT2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",)
LLAMA3 = (_NEWER % r"\p{N}{1,3}",)
QWEN = (_NEWER % r"\p{N}",)
QWEN35 = (
    _CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
    + _SPACES,
)
O200K = (_cased("", _CONTRACTIONS + "?", r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*"),)
PUBLISHED: dict[str, tuple[str, ...]] = {
    "GPT-2, OLMo, Pythia": GPT2,
    "LLaMA 3, SmolLM3, GLM-4, LFM2, Phi-4, OLMo 2": LLAMA3,
    "Qwen 2 and 3": QWEN,
    "Qwen 3.5": QWEN35,
    "o200k: GPT-4o, gpt-oss, Phi-4-mini, LLaMA 4": O200K,
    "Tekken": (_cased("", "", r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*"),),
    "Kimi K2": (
        r"[\p{Han}]+|"
        + _cased(r"&&[^\p{Han}]", _CONTRACTIONS + "?", r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"),
    ),
    "DeepSeek V3": (
        r"\p{N}{1,3}",
        "[一-龥\u3040-ゟ゠-ヿ]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    "cl100k: GPT-4": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+",
    ),
    "BLOOM": (" ?[^(\\s|[.,!?…。,、।۔،])]+",),
    "Viking": (" ?[^(\\s|[.,!?…。,、।۔،])]+", r"\p{N}"),
    "single numbers, then GPT-2": (r"\p{N}", *GPT2),
}
REFUSED = {
    "DeepSeek LLM and Coder": (r"\s+$", r"'\$'"),
    "Tiny Aya": (r"\d{1,3}(?=(?:\d{3})*\b)", r"'\(\?'"),
    "llama.cpp's form of Tekken": (r"((?=[\p{L}])([^a-z]))+", r"'\(\?'"),
}
"""Patterns that the C runtime does not support, and what the error names."""
