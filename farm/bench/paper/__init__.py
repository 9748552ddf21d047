"""`--suite=paper`: the paper's tables, cell by cell, each checked and recorded as it comes."""
