"""Targets in the kernels: views, with the functions of their contract."""
