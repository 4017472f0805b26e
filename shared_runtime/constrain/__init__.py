"""The seam between the runtime and a grammar: what every stage needs and no stage owns.

It knows regular expressions and schemas as languages, and tokens as bytes. What single libraries want to see of them
is in `regex_index` and `token_view`; nothing else here knows a grammar library.
"""
