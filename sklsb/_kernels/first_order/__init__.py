"""What surrounds the gradient in a first-order step, on memory that torch and NumPy share."""
