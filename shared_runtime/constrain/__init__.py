"""The seam between the runtime and a grammar: what every stage needs and no stage owns.

Six folders; each file holds one noun. Behind its name, the stages that use it, themselves or through another file here.

`compiling/`: what it may cost, who does it, what is kept of it

    compile_budget     12345  counts work, states, memory and time inside our own loops
    compile_pool       45     threads that compile; none is lost to one grammar twice
    build_process      3      a child process that builds, and can be killed
    build_child        -      what runs in that child, started by its path
    failures           12345  whose fault a failure is, and how long it is remembered
    grammar_cache      45     what was compiled and what was refused, within a memory limit
    ready_count        4      what several ranks agree is compiled, by counting
    lazy_registry      45     backends by name, imported when they are asked for

`using/`: masks, tokens, and faults in between

    grammar_watch      45     calls grammars so that one's fault ends one request
    fill_gate          5      whether to fill masks in threads
    bitmask            45     packed masks in host memory
    draft_rows         5      masks along a draft
    surrogates         45     takes half surrogate pairs out of a mask
    respell            245    spells an answer anew behind its prompt
    reasoning          5      where the reasoning part ends
    walk               -      walks a stage's masks without a model, for `check`

`regex/`: regular expressions as languages: one dialect, one tree, one automaton

    regex_dialect      12345  a pattern in, its normal form or an error with a position out
    regex_parser       12345  pattern to tree
    regex_classes      12345  escapes and `[...]`
    regex_flags        12345  inline flags and comments
    regex_tree         12345  the tree, and its text
    charset            12345  sets of characters
    positions          12345  the tree as an NFA
    char_fsm           12345  a deterministic automaton over characters
    byte_automaton     12345  the same over UTF-8 bytes
    token_trie         12345  all tokens' bytes as one trie
    token_functions    2      what tokens do to states; checks an index from a file
    factoring          345    common beginnings written once
    pattern_search     345    a pattern that is searched for and not matched
    regex_overlap      45     whether two patterns have a text in common
    spellable          345    a pattern cut down to what tokens can spell

`schema/`: JSON schemas, read, checked, and said so that a library gets them right

    json_schema_rules  45     what makes a value a JSON Schema
    json_schema_walk   45     the places where another schema stands
    json_schema_checks 45     what libraries are known to stumble on
    tidy_schema        45     one way to say a thing, and nothing that asks for nothing
    finite_schema      45     parts that no finite text can fill
    conjoined_schema   45     what stands beside anyOf, oneOf, allOf, said inside
    explicit_schema    45     for xgrammar
    counted_strings    45     for xgrammar, too: strings with a length
    number_bounds      45     for llguidance
    regular_schema     345    as far as a regular expression can hold them
    schema_parts       345    levels that a library writes, leaves that we write
    schema_leaves      345    strings, integers, constants, names
    schema_formats     345    formats of strings
    schema_regex       345    the whole regex, for outlines
    integer_range      345    integers between bounds, as digits
    json_text          345    a text as JSON writes it between quotation marks
    whitespace         345    blanks between JSON tokens

`grammars/`: context-free grammars and structural tags

    gbnf               45     GBNF grammars
    structural_tag     45     tags as data: `structures` and `triggers`
    structural_format  45     the `format` form
    start_check        45     whether a compiled grammar has any text

`libraries/`: outlines-core, xgrammar and llguidance, each as it wants to be spoken to

    known_deviations   45     what a library silently gets wrong, looked up at admission
    regex_index        345    outlines-core: index and guide
    index_plan         345    how large an index will be
    outlines_index     45     an index with its masks, for stages 4 and 5
    xgrammar_source    45     what xgrammar is told
    xgrammar_compilers 45     when it makes its masks: at once, or when they are asked for
    llguidance_source  45     what llguidance is told
    token_view         45     vocabulary and tokenizer as llguidance looks at them
"""
