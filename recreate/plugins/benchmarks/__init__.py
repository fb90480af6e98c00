"""Published benchmarks as domains: code, math, sql, ds1000, dacode, apiworld, appworld."""

NEEDS = ("audit", "scorers", "withheld")
