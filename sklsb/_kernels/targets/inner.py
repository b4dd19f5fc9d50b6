"""What a view around the view of another target passes on to that."""

from sklsb._kernels._jit import implements
from sklsb._kernels.contract import first_move, flip, forget_way, init_cache, log_prob_is_cheap


def passing_on(view_class):
    """Let a view, whose field ``inner`` is another one, pass on what it does not change."""
    implements(init_cache, view_class)(_init_cache)
    implements(flip, view_class)(_flip)
    implements(first_move, view_class)(_first_move)
    implements(log_prob_is_cheap, view_class)(_log_prob_is_cheap)
    implements(forget_way, view_class)(_forget_way)
    view_class.cache_size = property(_cache_size)
    view_class.scratch_size = property(_scratch_size)
    return view_class


def _cache_size(view):
    return view.inner.cache_size


def _scratch_size(view):
    return getattr(view.inner, "scratch_size", 0)


def _init_cache(view, chain):
    return init_cache(view.inner, chain)


def _flip(view, chain, move):
    return flip(view.inner, chain, move)


def _first_move(view, site):
    return first_move(view.inner, site)


def _log_prob_is_cheap(view):
    return log_prob_is_cheap(view.inner)


def _forget_way(view, chain):
    forget_way(view.inner, chain)
