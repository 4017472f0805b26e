"""Stories, the decoder that plays them, and the checks of exercise 12. Nothing is timed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from exercises.bench import bench
from jumpforward.exercises.case import Row, expect, expect_equal, plain
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.policy import StageOptions
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.trace import StepRecord
from tests.conformance.harness import Ask
from tests.museum.bench import Bench

Story = Sequence[tuple[str, bool]]
ForecastClass = Callable[[Any, Sequence[int], int], Any]
NEIGHBOUR_TOKENS = 14  # more than the passes of the longest story beside them
NEVER = "~"


def story(drawn: str) -> list[tuple[str, bool]]:
    """From `n<ame>x`: what is forced is in brackets."""
    return [(piece.strip("<>"), piece.startswith("<")) for piece in re.findall(r"<[^>]*>|[^<]+", drawn)]


def wanted(played: Story, engine: Engine, prompt: str = "x") -> Ask:
    """The request whose answer that story is: a sampled letter could also be a `~`, which this model does not like."""
    pattern = "".join(re.escape(text) if forced else "".join(f"[{letter}{NEVER}]" for letter in text)
                      for text, forced in played)
    spelled = engine.tokenizer.vocabulary.token_bytes
    bias = {token_id: -1000.0 for token_id, text in enumerate(spelled) if len(text) > 1 or text == NEVER.encode()}
    return Ask(prompt, Constraint.regex(pattern), SamplingParams(max_new_tokens=200, logit_bias=bias))


def turns(engine: Engine, asks: Sequence[Ask]) -> tuple[list[StepRecord], list[int], str]:
    """The asks together: the loop's records, the turns until each has ended, and the text of the first."""
    names = [engine.add_request(ask.prompt, sampling=ask.sampling, constraint=ask.constraint)[0] for ask in asks]
    records: list[StepRecord] = []
    ended: dict[str, int] = {}
    text = ""
    while engine.has_work:
        record = engine.step()
        assert record is not None
        records.append(record)
        for event in engine.take_events():
            if event.result is not None:
                ended[event.rid] = len(records)
                if event.rid == names[0]:
                    text = event.result.text
    return records, [ended[name] for name in names], text


def engine_of(made: Bench, least: int, *, jumps: bool = True) -> Engine:
    """Stage 2 with a trace."""
    return made.engine(2, trace=True, options=StageOptions(jump_forward=jumps, min_jump_bytes=least))


def measured(made: Bench, played: Story, least: int, prompt: str) -> tuple[dict[str, int], str]:
    """What a real run of the story costs, and what each of its passes reads."""
    engine = engine_of(made, least)
    records, _, text = turns(engine, [wanted(played, engine, prompt)])
    assert text == "".join(piece for piece, _ in played), f"the model wrote {text!r}"
    passes = [record.requests[0] for record in records if record.requests]
    rewrites = [one.jump for one in passes if one.jump is not None]
    found = {"passes": len(passes), "jumps": len(rewrites),
             "reencoded": sum(len(one.old_ids) - one.common_prefix for one in rewrites),
             "read": sum(len(one.fed) for one in passes) - len(engine.tokenizer.encode(prompt))}
    read = [" ".join(engine.tokenizer.vocabulary.shown(token_id) for token_id in one.fed) for one in passes]
    return found, " | ".join(f"(jump) {text}" if one.jump else text for one, text in zip(passes, read, strict=True))


def the_counts_come_true(part: ForecastClass, drawn: str, least: int, prompt: str = "x") -> None:
    """A forecast, then the run."""
    played = story(drawn)
    with bench() as made:
        ids = made.tokenizer.encode(prompt)
        got = plain(part(made.tokenizer, ids, least).counts(list(played)))
        came, read = measured(made, played, least, prompt)
    where = f"story {drawn}, prompt {prompt!r}, least {least}"
    expect(isinstance(got, dict) and set(got) == set(came), f"{where}: counts must have the keys {sorted(came)}, "
                                                            f"yours gives {got!r:.120}")
    for key, value in came.items():
        expect(got[key] == value,
               f"{where}: {key}: yours says {got[key]}, measured {value}; the passes read {read}")


def waiting(made: Bench, forced: int, neighbours: int, *, jumps: bool) -> int:
    """Turns until each has ended, added up: a request with that many forced bytes, and free ones."""
    engine = engine_of(made, 1, jumps=jumps)
    free = Ask("y", None, SamplingParams(max_new_tokens=NEIGHBOUR_TOKENS, ignore_eos=True))
    own = wanted([("a", False), ("0123456789"[:forced], True), ("c", False)], engine)
    return sum(turns(engine, [own, *[free] * neighbours])[1])


def the_crossover_comes_true(part: ForecastClass, neighbours: int) -> None:
    """At the number a jump is shorter, one below it is not."""
    with bench() as made:
        got = part(made.tokenizer, made.tokenizer.encode("x"), 1).crossover(neighbours)
        expect(type(got) is int and 1 <= got <= 9, f"neighbours: {neighbours}: the crossover must be a whole number of "
                                                   f"bytes, here between 1 and 9; yours is {got!r}")
        for forced in (got, got - 1):
            if forced:
                with_jump, without = (waiting(made, forced, neighbours, jumps=jumps) for jumps in (True, False))
                told = (f"neighbours: {neighbours}, forced bytes: {forced}: all together wait {with_jump} turns with "
                        f"the jump, {without} without it. It")
                if forced == got:
                    expect(with_jump < without, f"{told} does not pay, and your crossover is {got}")
                else:
                    expect(with_jump >= without, f"{told} pays, and your crossover is {got}")


def nothing_of_the_callers_changes(part: ForecastClass) -> None:
    """And a forecast can be asked twice."""
    with bench() as made:
        ids, played = made.tokenizer.encode("x"), story("n<ame>x")
        forecast = part(made.tokenizer, ids, 2)
        first, second = plain(forecast.counts(played)), plain(forecast.counts(played))
        expect_equal(second, first, "story n<ame>x, asked twice: the second answer")
        expect(ids == made.tokenizer.encode("x") and played == story("n<ame>x"), "it changed the prompt or the story")


def picture(part: ForecastClass) -> list[Row]:
    """A few forecasts, and what was measured."""
    rows = []
    with bench() as made:
        ids = made.tokenizer.encode("x")
        for drawn, least in (("aX<012>Y", 99), ("aX<012>Y", 2), ("n<ame>x", 2), ("n<a>x", 1), ("n<a>x", 2)):
            rows.append(Row(f"{drawn}  least {least}", _drawn(part(made.tokenizer, ids, least).counts(story(drawn))),
                            _drawn(measured(made, story(drawn), least, "x")[0])))
        for neighbours in (0, 1, 2):
            pays = next(forced for forced in range(1, 9) if waiting(made, forced, neighbours, jumps=True)
                        < waiting(made, forced, neighbours, jumps=False))
            rows.append(Row(f"neighbours: {neighbours}; pays from", str(part(made.tokenizer, ids, 1).crossover(
                neighbours)), str(pays)))
    return rows


def _drawn(counts: dict[str, int]) -> str:
    return ", ".join(f"{counts.get(key)} {key}" for key in ("passes", "jumps", "reencoded", "read"))
