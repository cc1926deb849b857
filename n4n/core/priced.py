"""What a key that demands prices demands of an endpoint: that what is asked of it would have a known cost."""

from __future__ import annotations

import msgspec

from n4n.core import json_bytes
from n4n.core.chat import ChatRequest
from n4n.core.constraints import Constraint, Offer, Term
from n4n.core.dialects.kinds import EMBEDDINGS
from n4n.core.directives import Directives
from n4n.core.service_tiers import tier_of

NAME = "require_pricing"
_SOURCE = "the key's rules"


def priced(chat: ChatRequest) -> Directives:
    """Input and output have a price, also in the tier of service that the request asks for; of what makes embeddings, the input."""
    fields = chat.fields if chat.native is None else chat.native.fields
    tier = _tier(fields.get("service_tier"))

    def holds(offer: Offer) -> bool:
        prices, supports = offer.endpoint.price, offer.endpoint.supports
        if prices is not None and tier:
            prices = prices.services.get(tier)
        if prices is None or prices.base.input is None:
            return False
        return prices.base.output is not None or (supports is not None and EMBEDDINGS in supports)

    return Directives(constraints=(Constraint(NAME, (Term("", holds),), _SOURCE),))


def _tier(said: msgspec.Raw | None) -> str:
    try:
        return tier_of(json_bytes.parse(bytes(said))) if said is not None else ""
    except json_bytes.NotJson:
        return ""
