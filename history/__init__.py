"""The real history: a timeline as data, and a reader of an SGLang clone that checks it and shows what is behind it."""
