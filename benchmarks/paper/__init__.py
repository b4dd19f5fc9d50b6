"""The experiments of E. Sansone, "LSB: Local Self-Balancing MCMC in Discrete Spaces", ICML 2022.

One module for each experiment, all with the same interface:

- ``SIZES["full"]`` and ``SIZES["quick"]``: seeds, chains, draws and so on, the arguments of ``run``,
- ``run(data, **size)``: the results, a dict that JSON can hold,
- ``tables(result)``: the tables of the page "Reproducing the paper", in reStructuredText,
- ``draw(result)``: a figure.

A transition is an iteration everywhere, in the burn-in as well.
"""
