"""Settings of the whole test suite."""

import matplotlib

matplotlib.use("Agg")
