"""docs/results/claims.md: every claim of the three papers in one line, from recorded results."""
