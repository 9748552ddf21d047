"""Names of the entries that generate text, and of their inputs; as in pe_generate.c."""

DECODE, PREFILL, PREFILL_LONG = "decode", "prefill", "prefill_long"
"""Entries for one token, for a chunk of a prompt, and for a long chunk."""
IDS, START, LAST, LOGITS = "input_ids", "start", "last", "logits"
"""Inputs i64: tokens [1, T], position of the first [1], the chunk's token to predict from [1].
Output f32: logits [vocabulary] of the token after that one."""
