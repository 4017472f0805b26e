"""On real weights our decoder writes the very tokens that `transformers` writes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from shared_runtime.model_runner import load_model
from tests.model_driver import ModelDriver

NEW_TOKENS = 64
PROMPTS = [
    "The capital of France is", "Once upon a time, there was a", "def fibonacci(n):\n", "The meaning of life",
    "1, 2, 3, 4,", '{"name": "Alice", "age":', "In 1969, the first", "Water boils at", "To make a good soup,",
    "The quick brown fox", "Dear Sir or Madam,\n", "SELECT name FROM", "Photosynthesis is the process",
    "My favourite colour is", "Les enfants jouent dans", "你好，", "<html>\n<head>", "A haiku about rain:\n",
    "The three laws of robotics are", "Q: What is 12 times 12?\nA:", "She opened the door and",
]


def greedy_by_transformers(folder: Path, prompts: list[list[int]]) -> list[list[int]]:
    """Its greedy continuations, all prompts in one batch with padding on the left."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    longest = max(map(len, prompts))
    ids = torch.tensor([[2] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    with torch.inference_mode():
        out = model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=NEW_TOKENS,
                             eos_token_id=None, pad_token_id=2)
    tokens: list[list[int]] = out[:, longest:].tolist()
    return tokens


@pytest.mark.slow
@pytest.mark.model
def test_greedy_tokens_are_those_of_transformers(embedded_folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(embedded_folder / "tokenizer.json"))
    prompts = {text: list(tokenizer.encode(text).ids) for text in PROMPTS}
    config, decoder = load_model(embedded_folder, dtype=torch.float32, device=torch.device("cpu"), exact=False)
    driver = ModelDriver(config, decoder)
    logits = driver.feed(prompts)
    written: dict[str, list[int]] = {text: [] for text in prompts}
    for _ in range(NEW_TOKENS):
        newest = {text: [int(logits[text][-1].argmax())] for text in prompts}
        for text, token in newest.items():
            written[text] += token
        logits = driver.feed(newest)

    expected = greedy_by_transformers(embedded_folder, list(prompts.values()))
    assert len(expected) >= 20
    assert written == dict(zip(prompts, expected, strict=True))
