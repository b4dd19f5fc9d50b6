"""What targets are in the kernels: a view each, and the functions of its contract."""
