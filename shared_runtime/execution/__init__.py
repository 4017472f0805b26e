"""Ways to run the loop faster without changing what it says: drafts, overlap, many ranks."""
