// From offsets in device memory to the table that the grouped kernels read. One CTA: a few hundred groups at most, and a
// few microseconds.
#include "groups.cuh"

constexpr int THREADS = 256;

struct Largest {
    static constexpr int64_t none = INT64_MIN;
    __device__ static int64_t of(int64_t a, int64_t b) { return a > b ? a : b; }
};
struct Sum {
    static constexpr int64_t none = 0;
    __device__ static int64_t of(int64_t a, int64_t b) { return a + b; }
};

// The combination of this thread's value and those of all threads before it.
template <class Of>
__device__ int64_t scan(int64_t (&shared)[THREADS], int64_t v) {
    const int i = threadIdx.x;
    for (int step = 1; step < THREADS; step *= 2) {
        shared[i] = v;
        __syncthreads();
        const int64_t other = i >= step ? shared[i - step] : Of::none;
        __syncthreads();
        v = Of::of(v, other);
    }
    return v;
}

// v of the last thread, in all of them.
__device__ int64_t last_of(int64_t& shared, int64_t v) {
    if (threadIdx.x == THREADS - 1) shared = v;
    __syncthreads();
    v = shared;
    __syncthreads();
    return v;
}

__device__ int64_t tiles_of(int64_t length, int64_t step) { return (length + step - 1) / step; }

extern "C" __global__ void __launch_bounds__(THREADS) group_table(const __grid_constant__ GroupTableParams p) {
    __shared__ int64_t shared[THREADS], last;
    // Offset i is the largest of those up to it, at least 0 and at most the rows that there are.
    int64_t largest = max((int64_t)0, p.offsets[0]), columns = 0, row_tiles = 0, column_tiles = 0;
    for (int64_t first = 0; first < p.count; first += THREADS) {
        const int64_t g = first + threadIdx.x;
        const bool exists = g < p.count;
        const int64_t own = exists ? p.offsets[g + 1] : Largest::none;
        const int64_t end = Largest::of(largest, scan<Largest>(shared, own));
        shared[threadIdx.x] = end;
        __syncthreads();
        const int64_t start = threadIdx.x == 0 ? largest : shared[threadIdx.x - 1];
        __syncthreads();
        Group group;
        group.row = min(start, p.total);
        group.rows = exists ? min(end, p.total) - group.row : 0;
        const int64_t padded = (group.rows + p.align - 1) / p.align * p.align;
        const int64_t column_end = columns + scan<Sum>(shared, padded);
        group.column = min(column_end - padded, p.capacity);
        const int64_t room = min(column_end, p.capacity) - group.column;
        group.columns = min(group.rows, room);
        const int64_t own_row_tiles = tiles_of(group.rows, p.row_step), own_column_tiles = tiles_of(room, p.column_step);
        const int64_t row_tile_end = row_tiles + scan<Sum>(shared, own_row_tiles);
        const int64_t column_tile_end = column_tiles + scan<Sum>(shared, own_column_tiles);
        group.row_tile = row_tile_end - own_row_tiles;
        group.column_tile = column_tile_end - own_column_tiles;
        if (exists) p.table[g] = group;
        largest = last_of(last, end);
        columns = last_of(last, column_end);
        row_tiles = last_of(last, row_tile_end);
        column_tiles = last_of(last, column_tile_end);
    }
    if (threadIdx.x == 0)
        p.table[p.count] = {min(largest, p.total), 0, min(columns, p.capacity), 0, row_tiles, column_tiles};
}
