"""The machine the five stages share: engine, scheduler, caches, model, sampler, detokenizer, trace."""
