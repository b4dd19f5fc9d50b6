"""Log-densities with their gradients, on torch; they know arrays, not targets."""
