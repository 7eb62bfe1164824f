#!/bin/sh
# The main job (`make run`): block-sparse attention on the queries, keys and values of a real transformer.
# For blocks of 32 and 16 builds the BigBird layout (3-block window, 1 global and 2 random blocks a row), shows it, and
# reports an early and a late layer: block-sparse beside dense, errors by head, and the attention that the layout keeps.
# Usage: examples/minilm/run.sh [BUILD_DIR]; writes layout.png and layout_b16.png here, the rest into BUILD_DIR/minilm.
set -eu
build=${1:-build}
bstk=$build/bstk
data=examples/data
out=$build/minilm
mkdir -p "$out"

for block in 32 16; do
    layout=$out/bigbird_b$block.npy
    picture=layout.png
    [ "$block" -eq 32 ] || picture=layout_b$block.png
    printf '\n================ BigBird layout, 512 tokens, blocks of %s (picture: %s)\n\n' "$block" "$picture"
    "$bstk" layout bigbird --seq 512 --block "$block" --heads 12 --window 3 --global 1 --random 2 --seed 0 \
        --png "$picture" -o "$layout" -q
    "$bstk" layout stats "$layout" --block "$block"
    for layer in 1 5; do
        printf '\n---------------- layer %s of MiniLM, 12 heads of 32, blocks of %s\n\n' "$layer" "$block"
        "$bstk" attention --report --layout "$layout" --block "$block" \
            "$data/minilm_layer${layer}_q.npy" "$data/minilm_layer${layer}_k.npy" "$data/minilm_layer${layer}_v.npy" \
            -o "$out/o_layer${layer}_b$block.npy" -q
    done
done
printf '\nPictures: layout.png, layout_b16.png. Layouts and outputs: %s/\n' "$out"
