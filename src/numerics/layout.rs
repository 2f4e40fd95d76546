//! Where codes and scale bytes lie in memory (docs/format.md, "Layouts").

use super::{Format, ScaleLayout};

/// Rows of one swizzled tile.
pub const TILE_ROWS: usize = 128;
/// Scale bytes along a row of one swizzled tile.
pub const TILE_SCALES: usize = 4;

/// Bytes of one row of codes without padding.
pub const fn code_row_bytes(format: Format, cols: usize) -> usize {
    match format {
        Format::Bf16 => 2 * cols,
        _ => cols.div_ceil(2),
    }
}

/// Scale bytes of one row: one a block, the tail block included.
pub const fn scale_cols(format: Format, cols: usize) -> usize {
    match format {
        Format::Bf16 => 0,
        _ => cols.div_ceil(format.block()),
    }
}

/// Scale bytes of a row in the swizzled layout: rounded up to whole tiles.
pub const fn swizzled_cols(scale_cols: usize) -> usize {
    scale_cols.div_ceil(TILE_SCALES) * TILE_SCALES
}

/// Bytes of all scales of a matrix, linear rows without padding.
pub const fn scale_bytes(layout: ScaleLayout, rows: usize, scale_cols: usize) -> usize {
    match layout {
        ScaleLayout::Linear => rows * scale_cols,
        ScaleLayout::Swizzled => rows.div_ceil(TILE_ROWS) * TILE_ROWS * swizzled_cols(scale_cols),
    }
}

/// Offset of the scale byte of (row, block) in the swizzled layout, for `scale_cols` blocks a row.
pub const fn swizzled_offset(row: usize, block: usize, scale_cols: usize) -> usize {
    (row / TILE_ROWS) * TILE_ROWS * swizzled_cols(scale_cols)
        + (block / TILE_SCALES) * (TILE_ROWS * TILE_SCALES)
        + (row % 32) * 16
        + (row % TILE_ROWS) / 32 * 4
        + block % TILE_SCALES
}

/// Offset of the scale byte of (row, block) in either layout, linear rows without padding.
pub const fn scale_offset(
    layout: ScaleLayout,
    row: usize,
    block: usize,
    scale_cols: usize,
) -> usize {
    match layout {
        ScaleLayout::Linear => row * scale_cols + block,
        ScaleLayout::Swizzled => swizzled_offset(row, block, scale_cols),
    }
}

/// Linear to swizzled; bytes that stand for no row or block are 0.
pub fn swizzle(linear: &[u8], rows: usize, scale_cols: usize) -> Vec<u8> {
    let mut out = vec![0; scale_bytes(ScaleLayout::Swizzled, rows, scale_cols)];
    for row in 0..rows {
        for block in 0..scale_cols {
            out[swizzled_offset(row, block, scale_cols)] = linear[row * scale_cols + block];
        }
    }
    out
}

/// Swizzled to linear.
pub fn unswizzle(swizzled: &[u8], rows: usize, scale_cols: usize) -> Vec<u8> {
    let mut out = vec![0; rows * scale_cols];
    for row in 0..rows {
        for block in 0..scale_cols {
            out[row * scale_cols + block] = swizzled[swizzled_offset(row, block, scale_cols)];
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_offsets() {
        let at = |row, block| swizzled_offset(row, block, 8);
        assert_eq!(
            [at(0, 0), at(1, 0), at(32, 0), at(0, 1), at(0, 4)],
            [0, 16, 4, 1, 512]
        );
        assert_eq!(
            [at(127, 3), at(128, 0), at(33, 6), at(200, 5)],
            [511, 1024, 534, 1673]
        );
        assert_eq!(swizzled_offset(128, 0, 5), 1024, "5 blocks are padded to 8");
    }

    #[test]
    fn round_trip_and_zero_padding() {
        for (rows, cols) in [(0, 0), (1, 1), (33, 2), (129, 5), (256, 4)] {
            let linear: Vec<u8> = (0..rows * cols).map(|i| (i % 255 + 1) as u8).collect();
            let swizzled = swizzle(&linear, rows, cols);
            assert_eq!(
                swizzled.len(),
                scale_bytes(ScaleLayout::Swizzled, rows, cols)
            );
            assert_eq!(
                swizzled.iter().filter(|b| **b != 0).count(),
                rows * cols,
                "each byte once, zeros elsewhere"
            );
            assert_eq!(unswizzle(&swizzled, rows, cols), linear);
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(code_row_bytes(Format::Nvfp4, 17), 9);
        assert_eq!(code_row_bytes(Format::Bf16, 17), 34);
        assert_eq!(
            [
                scale_cols(Format::Nvfp4, 17),
                scale_cols(Format::Mxfp4, 33),
                scale_cols(Format::Bf16, 9)
            ],
            [2, 2, 0]
        );
        assert_eq!(scale_bytes(ScaleLayout::Swizzled, 33, 2), 512);
    }
}
