"""Tempering in the kernels."""
