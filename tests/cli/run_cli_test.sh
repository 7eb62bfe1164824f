#!/bin/bash
# run_cli_test.sh TOOL NPY_TOOL FILE.test: runs the cases of a file in an empty folder, one after the other.
#
# A case is a command and what it must do:
#     $ bstk layout dense --seq oops        the command, by bash
#     > ...                                 goes on
#     | text                                a line of standard output
#     ! bstk: layout: ...                   a line of standard error
#     ? 2                                   exit code, 0 when left out
# "|~ REGEX" and "!~ REGEX" are lines that match an extended regular expression, "|..." is any number of lines.
# Lines that begin with # and empty lines are skipped. Every command sees bstk, npy_tool and $data.
set -u
tool=$(realpath "$1") npy_tool=$(realpath "$2") file=$(realpath "$3")
data=$(realpath "$(dirname "$0")/../../examples/data")
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/work" "$folder/bin"
ln -s "$tool" "$folder/bin/bstk"
ln -s "$npy_tool" "$folder/bin/npy_tool"
cd "$folder/work" || exit 1
unset BSTK_MAX_ISA BSTK_NUM_THREADS OMP_NUM_THREADS BSTK_LOG BSTK_CACHE_DIR NO_COLOR ARGP_HELP_FMT
export PATH="$folder/bin:$PATH" LC_ALL=C TERM=dumb data
failed=0 cases=0

# matches EXPECTED ACTUAL: whether the lines of two files agree, in the notation above.
matches() {
    local -a want=() got=()
    mapfile -t want <"$1"
    mapfile -t got <"$2"
    local i=0 line
    for line in ${want+"${want[@]}"}; do
        [[ $line == ... ]] && return 0
        ((i < ${#got[@]})) || return 1
        if [[ $line == "~ "* ]]; then
            local pattern="^${line#\~ }\$"
            [[ ${got[i]} =~ $pattern ]] || return 1
        else
            [[ " ${got[i]}" == "$line" || (-z $line && -z ${got[i]}) ]] || return 1
        fi
        i=$((i + 1))
    done
    ((i == ${#got[@]}))
}

run_case() {
    [[ -n $command ]] || return
    cases=$((cases + 1))
    timeout 120 bash -c "$command" >"$folder/out" 2>"$folder/err" </dev/null
    local got=$? why=
    [[ $got == "$code" ]] || why="exit code $got, expected $code"
    matches "$folder/want_out" "$folder/out" || why="${why:+$why; }standard output differs"
    matches "$folder/want_err" "$folder/err" || why="${why:+$why; }standard error differs"
    if [[ -n $why ]]; then
        failed=$((failed + 1))
        echo "FAILED $(basename "$file"):$start: $command"
        echo "  $why"
        sed 's/^/  got     | /' "$folder/out"
        sed 's/^/  got     ! /' "$folder/err"
        sed 's/^/  expected |/' "$folder/want_out"
        sed 's/^/  expected !/' "$folder/want_err"
    fi
    command=
}

command= number=0
while IFS= read -r line || [[ -n $line ]]; do
    number=$((number + 1))
    case $line in
    '$ '*)
        run_case
        command=${line#'$ '} start=$number code=0
        : >"$folder/want_out"
        : >"$folder/want_err"
        ;;
    '> '*) command+=$'\n'${line#'> '} ;;
    '|'*) printf '%s\n' "${line#'|'}" >>"$folder/want_out" ;;
    '!'*) printf '%s\n' "${line#'!'}" >>"$folder/want_err" ;;
    '? '*) code=${line#'? '} ;;
    '' | '#'*) ;;
    *)
        echo "$file:$number: cannot read '$line'"
        exit 1
        ;;
    esac
done <"$file"
run_case

echo "$(basename "$file"): $cases cases, $failed failed"
((cases > 0 && failed == 0))
