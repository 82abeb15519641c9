"""What a call costs, in US dollars: the user's own price, else the table that ships with `genai-prices`.

The table is found by the endpoint's address and the model's name together, so a known model behind an
unknown address has no price. Nothing is fetched. An unknown price or usage gives None, never 0.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable

from cotkit.chat.config import is_local

Price = Callable[[int | None, int | None, int], float | None]  # prompt, completion, cached prompt tokens


def price_of(model: str, base_url: str, own: tuple[float, float] | None = None) -> Price | None:
    """The price of `model` at `base_url`, None when nobody knows it. `own` is per million tokens."""
    if own is not None:
        per_prompt, per_completion = (dollars / 1e6 for dollars in own)
        if per_prompt == per_completion == 0:
            return lambda prompt, completion, cached=0: 0.0  # free, whatever it used
        return lambda prompt, completion, cached=0: (
            None
            if prompt is None or completion is None
            else prompt * per_prompt + completion * per_completion
        )
    if is_local(urllib.parse.urlsplit(base_url).hostname or ""):
        return None
    return _listed_price(model, base_url)


def _listed_price(model: str, base_url: str) -> Price | None:
    from genai_prices import Usage, calc_price

    def price(prompt: int | None, completion: int | None, cached: int = 0) -> float | None:
        if prompt is None or completion is None:
            return None
        usage = Usage(input_tokens=prompt, output_tokens=completion, cache_read_tokens=min(cached, prompt))
        try:
            return float(calc_price(usage, model, provider_api_url=base_url).total_price)
        except (LookupError, ValueError):  # not listed, or not for this kind of use
            return None

    known = price(1000, 1000)
    return price if known else None
