"""Short runs that decide: which candidate wins, how draws are thinned, where chains start."""
