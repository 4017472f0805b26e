"""The graded exercises: what there is (`catalogue`), the learner's folder, and checks in a process of their own."""
