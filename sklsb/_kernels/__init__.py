"""Everything that is compiled. It imports from here alone: so `_jit` knows what it is made of."""
