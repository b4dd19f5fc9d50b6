"""What notebooks show of balancing functions."""

from html import escape
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Size of the picture, the log-ratios that it shows, and the largest even part.
_WIDTH, _HEIGHT, _U, _H = 240.0, 120.0, 8.0, 4.0


class Even(Protocol):
    """What is shown of a balancing function."""

    def even_part(self, u: ArrayLike, /) -> NDArray[np.float64]: ...


def function_html(function: Even) -> str:
    """Return a small picture of the even part of log g, between those of min and max."""
    u = np.linspace(-_U, _U, 129)
    h = np.asarray(function.even_part(u)) - float(np.asarray(function.even_part(0.0)))
    grey = "".join(_curve(u, slope * np.abs(u), 0.35, 1) for slope in (-0.5, 0.0, 0.5))
    text = 'font-size="9" fill="currentColor" opacity="0.6"'
    words = (
        f'<text x="4" y="10" {text}>max</text><text x="4" y="{_HEIGHT / 2 - 3:g}" {text}>sqrt'
        f'</text><text x="4" y="{_HEIGHT - 4:g}" {text}>min</text>'
    )
    return (
        f"<div><code>{escape(repr(function))}</code><br/>"
        f'<svg width="{_WIDTH:g}" height="{_HEIGHT:g}" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" '
        f'role="img" xmlns="http://www.w3.org/2000/svg"><title>Even part of log g for log-ratios '
        f"from {-_U:g} to {_U:g}</title>{grey}{words}{_curve(u, h, 1.0, 2.5)}</svg></div>"
    )


def _curve(u: NDArray[np.float64], h: NDArray[np.float64], opacity: float, width: float) -> str:
    """Return a curve as an element of SVG; what lies outside of the picture is at its edge."""
    x = (u + _U) / (2 * _U) * _WIDTH
    y = (1.0 - np.clip(h, -_H, _H) / _H) / 2 * _HEIGHT
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
    return (
        f'<polyline points="{points}" fill="none" stroke="currentColor" opacity="{opacity:g}" '
        f'stroke-width="{width:g}"/>'
    )
