#!/bin/sh
# A short run of the trainer: it learns under every recipe, and a run that was stopped and resumed gives the losses of
# an unbroken one, to the last bit.   usage: demo.sh <trainer> <work directory>
set -u
trainer=$1 work=$2
passed=0 failed=0
check() {
    name=$1
    shift
    if "$@"; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED: $name"
    fi
}
rm -rf "$work"
mkdir -p "$work"
run() { "$trainer" --batch 2 --checkpoint-every 4 "$@"; }
check "a short run" run --steps 24 --out "$work/short"
for recipe in bf16 nvfp4 nvfp4_no_rht mxfp4; do
    check "$recipe learns" awk -F, 'NR == 2 { first = $2 } END { print FILENAME, first, $2; exit !(NR > 2 && $2 > 0 && $2 < first - 0.3) }' "$work/short/$recipe.csv"
done
check "the recipes differ" sh -c "! cmp -s '$work/short/bf16.csv' '$work/short/nvfp4.csv'"
check "there is a plot" sh -c "ls '$work/short' | grep -qE '\.(png|svg|ppm)$'"
check "an unbroken run" run --steps 12 --recipes nvfp4 --out "$work/whole"
check "a run stopped on the way" run --steps 12 --recipes nvfp4 --out "$work/broken" --stop-after 7
check "the same run resumed" run --steps 12 --recipes nvfp4 --out "$work/broken" --resume
check "resumed equals unbroken" cmp "$work/whole/nvfp4.csv" "$work/broken/nvfp4.csv"
echo "demo: $passed passed, $failed failed"
[ "$failed" = 0 ]
