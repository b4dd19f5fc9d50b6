"""Several chains on one target: what they keep, their random numbers, what moves them."""
