"""Reports: what the ledger and the plan say, as a page and on a terminal."""
