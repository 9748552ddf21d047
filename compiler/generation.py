"""Names of the entries that generate text, and of their inputs; as in pe_generate.c."""

DECODE, PREFILL = "decode", "prefill"
"""Entries for one token, and for a chunk of a prompt."""
IDS, START, LAST, LOGITS = "input_ids", "start", "last", "logits"
"""Inputs i64: tokens [1, T], position of the first [1], the chunk's token to predict from [1].
Output f32: logits [vocabulary] of the token after that one."""
