"""Reports: what the ledger and the plan say, as a page, as a terminal table, as readiness and as a forecast."""
