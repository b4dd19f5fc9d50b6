"""What `LSBSampler.fit` decides: the ways to sample that parameters allow, and the one it takes."""
