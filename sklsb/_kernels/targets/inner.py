"""What a view that wraps another view passes on to it."""

from sklsb._kernels._jit import implements
from sklsb._kernels.contract import (
    first_move,
    flip,
    forget_way,
    init_cache,
    log_prob_is_cheap,
    memo_place,
    memo_size,
    scratch_size,
)


def passing_on(view_class):
    """Let a view, whose field ``inner`` is another view, pass on what it does not change."""
    implements(init_cache, view_class)(lambda view, chain: init_cache(view.inner, chain))
    implements(flip, view_class)(lambda view, chain, move: flip(view.inner, chain, move))
    implements(memo_place, view_class)(
        lambda view, chain, move: memo_place(view.inner, chain, move)
    )
    implements(first_move, view_class)(lambda view, site: first_move(view.inner, site))
    implements(log_prob_is_cheap, view_class)(lambda view: log_prob_is_cheap(view.inner))
    implements(forget_way, view_class)(lambda view, chain: forget_way(view.inner, chain))
    view_class.cache_size = property(lambda view: view.inner.cache_size)
    view_class.memo_size = property(lambda view: memo_size(view.inner))
    view_class.scratch_size = property(lambda view: scratch_size(view.inner))
    return view_class
