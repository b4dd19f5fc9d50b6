"""Anything with a gradient on torch as a target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sklsb._system.arrays import Array, Ints
from sklsb._system.warn import warn
from sklsb.exceptions import ModelWarning, PrecisionWarning
from sklsb.targets.function import FunctionTarget

if TYPE_CHECKING:
    from sklsb.targets._torch.model import Device, DType, Model

# States at which a function is looked at by `fit`.
_N_LOOKS = 6
# Differences of log p, relative to its size, that single precision anywhere in it may explain.
_ROUNDING = 1e-4, 1e-4
_RANDOM = " Dropout in training mode does this, and noise of any kind."
_OF_BATCH = " Batch normalisation in training mode does this."


class TorchTarget(FunctionTarget):
    r"""A differentiable log-density on torch, such as an energy-based model.

    .. math:: \log p(x) = f(x), \qquad x_i \in \{0, \dots, k_i - 1\}

    up to the normalising constant. With ``LSBSampler(fast=True)`` proposals use the gradient of f,
    one evaluation per transition; with ``fast=False`` f is evaluated at all neighbours, as for a
    `FunctionTarget`.

    Parameters
    ----------
    log_prob : torch.nn.Module or callable
        The function f; if you have an energy E, pass -E. It takes zeros and ones of shape
        (n, n_sites); or, if some variable has more than two values, indicators of the values, shape
        (n, n_sites, k), k being the largest number of values. It returns a tensor of shape (n,)
        whose entry i depends on row i alone.
    n_sites : int
        Number of variables.
    n_states : int or sequence of n_sites int, default=2
        Number of values of each variable.
    dtype : {"float32", "float64", "int64"} or torch.dtype, optional
        Type of the tensor that f takes. Default: as a module's parameters, or float32. "int64": f
        takes the values themselves, shape (n, n_sites), as `torch.nn.Embedding` does, and has no
        gradient; samplers need ``fast=False``.
    initial_state : array_like of shape (n_sites,) or callable, optional
        See `FunctionTarget`.
    names, state_names, shape, dims : optional
        Names of the variables and of their values, or the shape of draws: see `FunctionTarget`.

    Attributes
    ----------
    density : callable
        f as a function of NumPy states, with the attributes ``function`` (f itself), ``dtype``
        and ``device``.

    Raises
    ------
    ImportError
        If torch is not installed.
    ValueError, TypeError
        If an argument, or what f returns, is not as described. `fit` looks again: at whether f
        returns the same for a state twice, and in another batch.

    See Also
    --------
    FunctionTarget : for functions that torch cannot differentiate.

    Notes
    -----
    The chain is exact for the values that f computes in its ``dtype``; the gradient affects only
    the proposals. A module is used in evaluation mode, which is undone afterwards; its parameters
    and their ``grad`` do not change. `LSBSampler` runs on the device of a module; a plain function
    is called on the CPU. Within a process, such functions are called one at a time.

    References
    ----------
    .. [1] W. Grathwohl et al., "Oops I took a gradient: scalable sampling for discrete
       distributions", ICML 2021.

    Examples
    --------
    >>> import torch
    >>> from sklsb import LSBSampler, TorchTarget
    >>> w = torch.linspace(-1.0, 1.0, 12)
    >>> target = TorchTarget(lambda x: (x @ w) - 0.1 * (x.sum(-1) - 6) ** 2, 12)
    >>> sampler = LSBSampler("sqrt", fast=True, n_burn_in=200, random_state=0).fit(target)
    >>> sampler.sample(100, thin="sweep")["x"].shape
    (4, 100, 12)
    """

    def __init__(
        self,
        log_prob: Callable[..., Any],
        n_sites: int,
        n_states: int | Sequence[int] = 2,
        *,
        dtype: Any = None,
        initial_state: ArrayLike | Callable[[np.random.Generator], ArrayLike] | None = None,
        names: Iterable[Any] | None = None,
        state_names: Any = None,
        shape: Sequence[int] | None = None,
        dims: Sequence[str] | None = None,
    ):
        from sklsb.targets._torch import Density

        if not callable(log_prob):
            raise TypeError(
                f"log_prob is {log_prob!r:.100}; give a torch.nn.Module or a function of a tensor."
            )
        self.density = Density(log_prob, dtype)
        super().__init__(
            self.density,
            n_sites,
            n_states,
            vectorized=True,
            initial_state=initial_state,
            names=names,
            state_names=state_names,
            shape=shape,
            dims=dims,
        )
        sizes, most = self.density.sizes_of_embeddings(), len(self.values)
        if self.density.takes_integers and sizes and min(sizes) > most:
            warn(
                f"The embeddings of the module take {sizes} tokens, and n_states says {most}: "
                "larger ones are never drawn. Give n_states, the number of tokens.",
                ModelWarning,
            )

    def log_prob(self, x: ArrayLike) -> Array:
        self._look(again=True)
        return super().log_prob(x)

    def _try(self, vectorized: bool | None) -> None:
        self.density.n_values = max(2, len(self.values))
        super()._try(vectorized)

    def _look(self, again: bool = False) -> None:
        """Look at the function as it is now; again only if it may be random since."""
        if self.density.trains_by_batch:
            warn(
                f"{self!r:.100} has batch normalisation in training mode. Chains see evaluation "
                "mode, which is another function: call eval() before you take the loss, or use "
                "torch.nn.LayerNorm.",
                ModelWarning,
            )
        if again and not self.density.may_be_random:
            return
        rng = np.random.default_rng(1)
        states = rng.integers(self._cardinalities, size=(_N_LOOKS, self.n_sites))
        self._look_twice(states, self._evaluate(states))
        precision = self.density.result_dtype
        if precision in ("float16", "bfloat16"):
            warn(
                f"The log-density of {self!r:.100} is {precision}, which has 2 or 3 digits. The "
                "draws follow the rounded values. Let its last layers and sums be float32, for "
                "example outside of torch.autocast.",
                PrecisionWarning,
            )

    def _try_one_by_one(self, states: Ints, together: Array) -> None:
        self._look_twice(states, together)
        super()._try_one_by_one(states, together)

    def _look_twice(self, states: Ints, found: Array) -> None:
        """Check that states have the same values again, and in another batch."""
        half = (len(states) + 1) // 2
        for where, n, why in (
            ("when called again", len(states), _RANDOM),
            (f"in a batch of {half} states", half, _OF_BATCH),
        ):
            self._compare(states, found, self._evaluate(states[:n]), _ROUNDING, where, why)

    @property
    def _advice(self) -> str:  # type: ignore[override]
        advice = " A batch must be no more than its rows: no normalisation over it."
        found = ", ".join(self.density.in_training())
        if found:
            advice += (
                f" In training mode are: {found}. Call their eval(), or give a torch.nn.Module "
                "that contains them instead of a function: it is evaluated in evaluation mode."
            )
        return advice

    def _is_single_given(self, sites: Ints, observed: Ints) -> bool:
        in_single = "float32" in (str(self.density.dtype)[6:], self.density.result_dtype)
        return in_single or super()._is_single_given(sites, observed)

    @cached_property
    def value_cost(self) -> int:  # type: ignore[override]
        return self.density.n_operations(np.zeros((1, self.n_sites), dtype=self.dtype)) >> 10

    @property
    def _named(self) -> Any:
        return self.density.function

    def first_order_ratios(self, x: ArrayLike) -> Array:
        r"""First-order log-ratios: the gradient of f along each change, in float64 or float32.

        .. math:: (x^m - x) \cdot \nabla f(x)

        0 where the gradient is not finite.
        """
        from sklsb.targets._torch import first_order_ratios

        return first_order_ratios(self, self.check_states(x))

    def _torch_model(self, device: Device, dtype: DType) -> Model:
        from sklsb.targets._torch import DensityModel

        if self.density.takes_integers:
            raise TypeError(
                f'fast=True needs a gradient, and {self!r:.100} takes integers, dtype="int64", '
                "which have none. Use fast=False, or leave dtype out: the function is then given "
                "indicators x of the values, and an embedding of them is x @ embedding.weight."
            )
        return DensityModel(self.density)  # where the tensors of f are
