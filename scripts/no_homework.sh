#!/bin/sh
# Fails when the commits since a base hold answers to the exercises: `sh scripts/no_homework.sh BASE`.
#
# An answer is: a file in my_exercises/, a learner's state or adapters, a starter that is one no more, or, outside
# exercises/, a file that has the first line of a starter, or a new one outside of the product with an exercise's name.
set -eu
base=${1:?"usage: no_homework.sh BASE (a commit to compare with)"}
changed=$(git -c core.quotePath=false diff --name-only --diff-filter=ACMR "$base"...HEAD)
added=$(git -c core.quotePath=false diff --name-only --diff-filter=ACR "$base"...HEAD)
found=0

complain() {
    echo "error: $1: $2" >&2
    found=1
}

# Here, not behind a pipe: there the loop would be a process of its own, and `found` lost.
old_ifs=$IFS
IFS='
'
for path in $changed; do
    case $path in
        my_exercises/* | */my_exercises/*) complain "$path" "this is an answer; take it out of the pull request" ;;
        adapters.py | */adapters.py | progress.json | */progress.json)
            complain "$path" "this is a learner's file; take it out of the pull request" ;;
        exercises/*/starter.py)
            grep -q "TODO" "$path" || complain "$path" "the starter has no TODO any more: was it solved in place?" ;;
        exercises/* | tests/*) ;;
        *.py | *.py.[0-9]*)  # what `exercises reset` keeps has a number behind its name
            if head -n 1 "$path" | grep -Eq '^"""Exercise [0-9]+: '; then
                complain "$path" "this looks like an answer to an exercise; take it out of the pull request"
            fi ;;
    esac
done
for path in $added; do
    case $path in
        exercises/* | tests/* | stages/* | shared_runtime/* | jumpforward/* | history/* | benchmarks/* | scripts/* | \
            my_exercises/* | */my_exercises/*) ;;
        *.py)
            slug=$(basename "$path" .py)
            for folder in exercises/[0-9][0-9]_"$slug"; do
                if [ -d "$folder" ]; then
                    complain "$path" "it has the name of an answer to an exercise; take it out of the pull request"
                fi
            done ;;
    esac
done
IFS=$old_ifs
exit "$found"
