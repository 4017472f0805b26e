"""Step through a decoder: one recording of a request, which a terminal, a notebook and a web page play.

`recording` runs a request and keeps its trace, `frames` turns the trace into what a person sees step by step, `words`
says it in sentences, `automaton` and `picture` draw the FSM; the faces only show what is in the recording.
"""
