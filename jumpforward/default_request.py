"""The request that `compare` runs when it is given none: what `make demo` shows."""

PROMPT = (
    "Invent a sailing ship. Describe it as JSON with the keys ship, rig, home port, years at sea and afloat. "
    "Answer with the JSON only."
)
REGEX = (
    r'\{"ship": "[A-Z][a-z]{2,12}( [A-Z][a-z]{2,12})?", "rig": "(sloop|schooner|brigantine|full-rigged ship)", '
    r'"home port": "(Lisbon|Bergen|Nagasaki|Valparaiso)", "years at sea": [1-9][0-9]?, '
    r'"afloat": (true|false)\}'
)
