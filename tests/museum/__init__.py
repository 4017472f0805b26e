"""The bug museum: wrong variants of real parts, and the invariants that tell them from the right ones.

Every row of `jumpforward museum list` has one file in `rows/`: a *specimen*, the smallest faithful wrong variant of
one real function or class and a drop-in for it, and one *invariant*, a function that says nothing about a right part
and raises `Broken`, naming the symptom, about a wrong one. What a row is about stands in its metadata alone.
"""
