// Groups of tokens (docs/abi.md, "Groups"): what kernels know of each one, worked out on the device from the caller's
// offsets by group_table (groups.cu), so that no offset can lead outside the buffers.
#pragma once
#include <cstdint>

// The table has one more entry: its row_tile and column_tile are the numbers of all tiles.
struct Group {
    int64_t row, rows;         // its rows of the tokens
    int64_t column, columns;   // where its columns of a columnwise copy start, and its tokens there
    int64_t row_tile;          // tiles of row_step rows of all groups before it
    int64_t column_tile;       // and tiles of column_step columns, padding included
};

struct GroupTableParams {
    const int64_t* offsets;  // count + 1
    Group* table;            // count + 1
    int64_t count;
    int64_t total;     // rows that there are
    int64_t align;     // columns of a group start at a multiple of it
    int64_t capacity;  // columns that there are
    int64_t row_step, column_step;
};

static_assert(sizeof(Group) == 48 && sizeof(GroupTableParams) == 64, "src/cuda/groups.rs");

// The group that a tile belongs to; empty ones have none.
template <int64_t Group::*TILE>
__device__ __forceinline__ int64_t group_of(const Group* table, int64_t count, int64_t tile) {
    int64_t low = 0, high = count;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (table[middle].*TILE <= tile) low = middle;
        else high = middle;
    }
    return low;
}
