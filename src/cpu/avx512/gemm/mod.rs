//! Block-scaled products (mode BLOCK) on AVX-512 VNNI, one tile of D at a time.

pub mod bf16;
pub mod decode;
pub mod kernel;
pub mod pack;

use crate::cpu::operand::Operand;
use crate::cpu::packing::{Held, Packing};
use kernel::{a_bytes, b_bytes, COLS, ROWS};
use std::ops::Range;

/// Rows of a tile at most.
pub const TILE_ROWS: usize = 128;
/// k-blocks of 16 of an unpacked panel: 192 KiB.
const DEPTH: usize = 256;
/// k-blocks of 16 up to which a tile's rows of A stay packed from one tile to the next: 1.5 MiB.
const KEPT: usize = 512;

/// Where B comes from.
#[derive(Clone, Copy)]
pub enum Right<'a> {
    Rows(&'a Operand),
    /// A weight packed by `pack_weight`: panels of 32 columns one after the other.
    Packed(*const u8),
}

/// Bytes of a packed weight.
pub fn packed_weight_bytes(m: &Operand) -> usize {
    m.rows.div_ceil(COLS) * panel_bytes(m)
}

/// Bytes of one of its panels.
pub fn panel_bytes(m: &Operand) -> usize {
    m.scale_cols() * pack::packed_bytes(m.block / 16)
}

/// Packs panel `panel` of a weight.
///
/// # Safety
/// `m` must describe readable memory, `out` be writable for `panel_bytes(m)`; the processor must be able to run this.
pub unsafe fn pack_weight_panel(m: &Operand, panel: usize, out: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        match m.block {
            16 => pack::weight_panel::<1>(m, panel * COLS, m.scale_cols(), out),
            _ => pack::weight_panel::<2>(m, panel * COLS, m.scale_cols(), out),
        }
    }
}

/// Writes the accumulators of D's tile `rows` x `cols` (`cols` starts at a multiple of 32) to `acc`, rows `ld` apart;
/// whole panels of 32 columns are written, so `ld` is at least the tile's columns rounded up to 32.
///
/// # Safety
/// `a` and `b` must describe readable memory of one K, `acc` be writable for the tile; the processor must be able to
/// run this.
#[allow(clippy::too_many_arguments)]
pub unsafe fn tile(
    a: &Operand,
    right: Right,
    rows: Range<usize>,
    cols: Range<usize>,
    scratch: &mut Packing,
    acc: *mut f32,
    ld: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match a.block {
            16 => tile_of::<1>(a, right, rows, cols, scratch, acc, ld),
            _ => tile_of::<2>(a, right, rows, cols, scratch, acc, ld),
        }
    }
}

unsafe fn tile_of<const S: usize>(
    a: &Operand,
    right: Right,
    rows: Range<usize>,
    cols: Range<usize>,
    scratch: &mut Packing,
    acc: *mut f32,
    ld: usize,
) {
    let blocks = a.scale_cols();
    let groups = rows.len().div_ceil(ROWS);
    let panels = cols.len().div_ceil(COLS);
    // SAFETY: groups and panels cover the tile; buffers are sized for what is packed into them.
    unsafe {
        for r in 0..rows.len() {
            acc.add(r * ld).write_bytes(0, panels * COLS);
        }
        let keep = blocks * S <= KEPT;
        let a_depth = if keep { blocks } else { DEPTH / S };
        let b_depth = (DEPTH / S).min(blocks);
        let packed_a = scratch.a.reserve(groups * a_depth * a_bytes(S));
        let packed_b = scratch.b.reserve(b_depth * b_bytes(S));
        for a_first in (0..blocks).step_by(a_depth.max(1)) {
            let a_blocks = a_depth.min(blocks - a_first);
            let key = Some(Held {
                codes: a.codes as usize,
                first_row: rows.start,
                rows: rows.len(),
                first_block: a_first,
                blocks: a_blocks,
            });
            if scratch.held != key {
                for g in 0..groups {
                    let out = packed_a.add(g * a_blocks * a_bytes(S));
                    pack::group_a::<S>(a, rows.start + g * ROWS, a_first, a_blocks, out);
                }
                scratch.held = key;
            }
            for p in 0..panels {
                let col = cols.start + p * COLS;
                if let (Right::Packed(w), 1) = (right, groups) {
                    // Few rows: open the weight's codes in registers, straight into the product.
                    let panel = w.add(col / COLS * blocks * pack::packed_bytes(S));
                    let c = acc.add(p * COLS);
                    decode::rows::<S>(
                        rows.len(),
                        packed_a,
                        panel,
                        blocks,
                        a_first,
                        a_blocks,
                        c,
                        ld,
                    );
                    continue;
                }
                for first in (0..a_blocks).step_by(b_depth.max(1)) {
                    let n = b_depth.min(a_blocks - first);
                    match right {
                        Right::Rows(b) => pack::panel_b::<S>(b, col, a_first + first, n, packed_b),
                        Right::Packed(w) => {
                            let panel = w.add(col / COLS * blocks * pack::packed_bytes(S));
                            pack::open_panel::<S>(panel, blocks, a_first + first, n, packed_b);
                        }
                    }
                    for g in 0..groups {
                        let group_a = packed_a.add((g * a_blocks + first) * a_bytes(S));
                        let c = acc.add(g * ROWS * ld + p * COLS);
                        let left = (rows.len() - g * ROWS).min(ROWS);
                        kernel::group::<S>(left, group_a, packed_b, c, ld, n);
                    }
                }
            }
        }
    }
}
