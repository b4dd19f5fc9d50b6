r"""Spike and slab: which columns are in a regression, by a jump process over windows of columns.

**State.** A model is a set of *units*: single columns, or groups that come and go together. For the
included columns A, M = X_A' W X_A + diag(ridge) and z = X' r, where W are weights of the rows (none
for the linear model, whose rows are scaled beforehand) and r the response (linear: centred, of
length one; logistic: y - m/2). Kept are the inverse of M, b = M^-1 z_A, and for each column of the
window

    u_j = M_jj - M_jA M^-1 M_Aj,  what the included columns leave of column j,
    v_j = z_j - M_jA b,           its product with what they leave of the response.

A flip changes all of them by rank one, in O(k p). Row j of the Gram matrix is made when column j
first needs it. `rebuild` computes everything anew from those rows: at the border of each window,
after many flips, and when a flip finds that what is kept has drifted (`DRIFT`).

**Odds.** With Q = b' z_A and E = 1 - shrink Q, log p of a model is its *fit* plus the *rest*:

    fit  = -exponent log E   (`Posterior.gaussian` False: the noise is integrated out), or
    fit  = Q / 2             (True: given W, the logistic model with Polya-Gamma weights),
    rest = size_term[k] + the sum of log_odds over included units - det_weight log det M.

So the odds that unit j is included, given all others, are for a single column

    linear:    (1 - shrink v^2 / (u E))^-exponent    u^-det_weight  exp(log_odds + size difference)
    logistic:  exp(v^2 / (2 u))                      u^-1/2         exp(log_odds + size difference)

where log_odds contains the log prior odds and -log(1 + g) / 2 (prior "g") or log(tau) / 2
(logistic, ridge tau). For a group of d columns u is a d x d matrix. For an included unit E, u and v
of the model without it follow from its block of M^-1 and of b. The odds o do not depend on whether
the unit is included: every visited state gives its conditional probability o / (1 + o).

**Process.** Unit j enters at the rate ``barker o / (1 + o) + leave o`` and leaves at the rate
``barker / (1 + o) + leave``: their ratio is o for any barker, leave >= 0. Barker's function is
(1, 0), weighted tempered Gibbs (0, 1). The process runs for a *fixed time*, during which only the
units of the window change, then the next window begins. The window must not depend on the state;
a fixed number of jumps would weight states by the sum of their rates. With ``power`` < 1, o is
that of exp(power fit + rest), and states have weights exp((1 - power) fit).

**For weights of rows that change between windows** (logistic): give `columns` with ``weight``, set
``Window.size[FRESH]`` before each window (rows of the Gram matrix are forgotten, u and v made anew
from the weights), include the intercept as a unit that is not free (see ``Posterior.n_always``).
After `run_window`, ``Window.included`` has the local columns that an update of the weights needs.
"""
