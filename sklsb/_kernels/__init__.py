"""Everything that is compiled. It imports from here alone, so that `_jit` knows what it is made of."""
