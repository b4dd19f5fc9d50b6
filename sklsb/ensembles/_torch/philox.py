"""Many uniform numbers from one, the same on every device."""

import torch

_LOW = 0xFFFFFFFF
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85


def philox(counter: list[torch.Tensor], key: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return four words of Philox 4x32-10 (Salmon et al., 2011) for a counter and a key.

    Words are int64 tensors of 32 bits; their products wrap, which does not change their bits.
    """
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(10):
        first, second = _MULTIPLIERS[0] * a, _MULTIPLIERS[1] * c
        a, b = (second >> 32 & _LOW) ^ b ^ k0, second & _LOW
        c, d = (first >> 32 & _LOW) ^ d ^ k1, first & _LOW
        k0, k1 = k0 + _WEYL[0] & _LOW, k1 + _WEYL[1] & _LOW
    return [a, b, c, d]


def expand(u: torch.Tensor, n: int) -> torch.Tensor:
    """Return u and n - 1 uniform numbers for which it is the key, along a new last axis."""
    if n == 1:
        return u[..., None]
    bits = (u * 2.0**53).long()[..., None]
    count = torch.arange(n // 2, device=u.device).expand(*u.shape, -1)
    zero = torch.zeros_like(count)
    words = philox([count, zero, zero, zero], [bits & _LOW, bits >> 32])
    pairs = [(words[k] >> 5).double() * 2.0**26 + (words[k + 1] >> 6) for k in (0, 2)]
    more = torch.cat([pair * 2.0**-53 for pair in pairs], dim=-1)
    return torch.cat([u[..., None], more[..., : n - 1]], dim=-1)
