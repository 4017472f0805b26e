"""The trial that a jump has to win: a card with long keys, on the real model, against recorded forward passes.

Recorded (`jump_and_retokenize`): greedy, fp32, chat template with its default system prompt, at most 220 tokens;
passes include the prompt's own and the one that yields EOS. That trial jumped single bytes too.
"""

from __future__ import annotations

import re

import pytest

from shared_runtime.constraint import Constraint
from shared_runtime.policy import StageOptions
from shared_runtime.sampling_params import SamplingParams
from tests.conftest import EngineFactory

pytestmark = [pytest.mark.slow, pytest.mark.model]

CARD = (r'\{\n  "ship": "[A-Za-z ]{1,16}",\n  "rig": "(sloop|schooner|brigantine|full-rigged ship)",\n'
        r'  "home port": "(Lisbon|Bergen|Nagasaki|Valparaiso)",\n  "captain": \{\n    "name": "[A-Za-z ]{1,16}",\n'
        r'    "years at sea": [0-9]{1,2},\n    "temper": "(calm|stern|merry)"\n  \},\n'
        r'  "cargo": "(tea|timber|salted fish|letters of the crown)",\n  "tonnage": [0-9]{2,3}\.[0-9],\n'
        r'  "afloat": "(afloat|sunk)",\n  "motto": "[A-Za-z ,]{1,24}"\n\}')

SCHEMA = ('{"type": "object", "properties": {"ship": {"type": "string", "maxLength": 20}, "built": {"type": "integer", '
          '"minimum": 1500, "maximum": 1999}, "rig": {"enum": ["sloop", "schooner", "brigantine", "full-rigged ship"]},'
          ' "captain": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "temper": '
          '{"type": "string", "maxLength": 20}, "years at sea": {"type": "integer", "minimum": 0, "maximum": 60}}, '
          '"required": ["name", "temper", "years at sea"], "additionalProperties": false}, "afloat": {"type": '
          '"boolean"}}, "required": ["ship", "built", "rig", "captain", "afloat"], "additionalProperties": false}')

NO_KEYS = "Invent a sailing ship and describe it as JSON."
PROMPTS = {
    NO_KEYS: 31,
    f"Invent a sailing ship and describe it as JSON that follows this JSON schema:\n{SCHEMA}\n"
    "Answer with the JSON only.": 35,
    "Invent a sailing ship. Fill in a JSON card with the keys ship, built, rig, home port, captain (name, temper, "
    "years at sea), cargo, tonnage, afloat, motto. Answer with the JSON only.": 32,
}


@pytest.mark.parametrize(("minimum", "more"), [(1, 0), (2, 1)])
def test_no_more_passes_than_recorded(minimum: int, more: int, make_engine: EngineFactory) -> None:
    """By default one more: the point of `tonnage` is a single byte, and is sampled, as upstream did."""
    engine = make_engine(stage=2, model="embedded", trace=True, options=StageOptions(min_jump_bytes=minimum))
    for prompt, recorded in PROMPTS.items():
        engine.add_request(messages=[{"role": "user", "content": prompt}], constraint=Constraint.regex(CARD),
                           sampling=SamplingParams(max_new_tokens=220))
        while engine.has_work:
            engine.step()
            engine.check_integrity()
        result = engine.take_events()[-1].result
        assert result is not None
        assert result.metrics.forward_passes <= recorded + more
        assert result.metrics.sampled_tokens == result.metrics.forward_passes
        assert result.finish_reason == "stop"
        assert re.fullmatch(CARD, result.text)
        spelled = engine.tokenizer.spell(result.text)
        assert len(spelled) <= len(result.token_ids) - 1 <= len(spelled) + 2, "nearly the text's own encoding"


def test_without_jumps_it_is_stage_1_token_for_token(make_engine: EngineFactory) -> None:
    results = []
    for stage in (1, 2):
        engine = make_engine(stage=stage, model="embedded", exact=True, options=StageOptions(jump_forward=False))
        results.append(engine.generate_one(messages=[{"role": "user", "content": NO_KEYS}],
                                           constraint=Constraint.regex(CARD),
                                           sampling=SamplingParams(max_new_tokens=220)))
    first, second = results
    assert first.token_ids == second.token_ids
    assert re.fullmatch(CARD, second.text)
    assert second.metrics.forward_passes == len(second.token_ids)
    assert second.counts["jumped"] == second.metrics.reencoded_tokens == 0
