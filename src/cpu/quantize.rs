//! Quantize, requantize and amax.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::encode::Encoder;
use super::{panel, stats, Cpu, Tile};
use crate::numerics::{Block, ScaleLayout};
use crate::plan::{CopyPlan, QuantizePlan, Quantized};

/// Elements of a tile, about: small enough to balance threads, large enough not to notice a job's cost.
const TILE: usize = 1 << 16;

/// Cuts a source into tiles; the cut depends on nothing but the plan.
struct Tiles {
    rows: usize,
    cols: usize,
    row_step: usize,
    col_step: usize,
}

impl Tiles {
    fn new(plan: &QuantizePlan) -> Tiles {
        let (rows, cols) = (plan.x.rows(), plan.x.cols());
        // Rows that must stay together: those that a columnwise copy's blocks and transforms run along, or a tile's.
        let unit = match (&plan.columnwise, &plan.rowwise) {
            (None, Some(c)) if c.options.block == Block::OneD => 1,
            (None, _) => 32,
            _ => panel::WIDTH,
        };
        let wide = TILE / unit;
        let (row_step, col_step) = if cols > wide {
            (unit, wide.next_multiple_of(panel::WIDTH))
        } else {
            (unit * (TILE / (unit * cols.max(1))).max(1), cols.max(1))
        };
        Tiles {
            rows,
            cols,
            row_step,
            col_step,
        }
    }

    fn count(&self) -> usize {
        self.rows.div_ceil(self.row_step) * self.cols.div_ceil(self.col_step)
    }

    fn get(&self, i: usize) -> Tile {
        let across = self.cols.div_ceil(self.col_step);
        let part = |i: usize, step: usize, end: usize| -> Range<usize> {
            i * step..((i + 1) * step).min(end)
        };
        Tile {
            rows: part(i / across, self.row_step, self.rows),
            cols: part(i % across, self.col_step, self.cols),
        }
    }
}

/// Fills the amax of every copy: given, or computed.
pub fn amax(cpu: &Cpu, plan: &QuantizePlan) {
    amax_all(cpu, std::slice::from_ref(plan));
}

fn amax_all(cpu: &Cpu, plans: &[QuantizePlan]) {
    let mut wanted = false;
    for copy in plans.iter().flat_map(|p| p.copies()) {
        let domains = copy.out.domains();
        // SAFETY: the plan checked that both hold `domains` values; they may be the same memory.
        unsafe {
            if domains == 0 {
            } else if copy.given_amax.is_null() {
                std::ptr::write_bytes(copy.out.amax, 0, domains);
                wanted = true;
            } else {
                std::ptr::copy(copy.given_amax, copy.out.amax, domains);
            }
        }
    }
    if wanted {
        for_tiles(cpu, plans, |plan, tile| (cpu.kernels.amax_tile)(plan, tile));
    }
}

/// The tiles of all calls, spread over the threads. Nothing is allocated: a tile looks for its call.
fn for_tiles(cpu: &Cpu, plans: &[QuantizePlan], each: impl Fn(&QuantizePlan, &Tile) + Sync) {
    let count = plans.iter().map(|p| Tiles::new(p).count()).sum();
    cpu.pool.run(count, |i| {
        let mut left = i;
        for plan in plans {
            let tiles = Tiles::new(plan);
            if left < tiles.count() {
                return each(plan, &tiles.get(left));
            }
            left -= tiles.count();
        }
    });
}

/// Quantizes.
pub fn run(cpu: &Cpu, plan: &QuantizePlan) {
    run_all(cpu, std::slice::from_ref(plan));
}

/// Quantizes several matrices that share no output.
pub fn run_all(cpu: &Cpu, plans: &[QuantizePlan]) {
    amax_all(cpu, plans);
    for copy in plans.iter().flat_map(|p| p.copies()) {
        clear_scale_padding(&copy.out);
    }
    let saturated = AtomicU64::new(0);
    for_tiles(cpu, plans, |plan, tile| {
        let count = (cpu.kernels.quantize_tile)(plan, tile);
        saturated.fetch_add(count, Ordering::Relaxed);
    });
    let saturated = saturated.into_inner();
    for plan in plans.iter().filter(|p| !p.stats.is_null()) {
        debug_assert!(plans.len() == 1, "statistics of several calls");
        stats::write(cpu, plan, saturated);
    }
}

/// Is the amax of this copy to be computed?
pub fn wants_amax(copy: &CopyPlan) -> bool {
    copy.out.domains() > 0 && copy.given_amax.is_null()
}

/// Raises the amax of a row's scale domain, which other threads may raise too. Floats that are not negative order as
/// their bits do.
pub fn raise(copy: &CopyPlan, row: usize, amax: f32) {
    let domain = copy.out.domain_of(row);
    // SAFETY: amax holds `domains()` aligned values that all threads of this call reach as atomics only.
    let value = unsafe { AtomicU32::from_ptr(copy.out.amax.add(domain).cast::<u32>()) };
    value.fetch_max(amax.to_bits(), Ordering::Relaxed);
}

/// The plan with one of its copies.
pub fn only(plan: &QuantizePlan, copy: &CopyPlan) -> QuantizePlan {
    let (rowwise, columnwise) = if copy.columnwise {
        (None, Some(*copy))
    } else {
        (Some(*copy), None)
    };
    QuantizePlan {
        rowwise,
        columnwise,
        ..*plan
    }
}

/// Writes the scale bytes of blocks `first..` of a row.
///
/// # Safety
/// The blocks must exist.
pub unsafe fn store_scales(out: &Quantized, row: usize, first: usize, bytes: &[u8]) {
    // SAFETY: the plan checked that the scales hold every block of every row.
    unsafe {
        if out.scale_layout == ScaleLayout::Linear {
            let p = out.scales.add(row * out.scale_stride + first);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), p, bytes.len());
        } else {
            // Four neighbours along the row lie together.
            let mut i = 0;
            while i < bytes.len() {
                let n = (4 - (first + i) % 4).min(bytes.len() - i);
                let p = out.scales.add(out.scale_offset(row, first + i));
                std::ptr::copy_nonoverlapping(bytes[i..].as_ptr(), p, n);
                i += n;
            }
        }
    }
}

pub fn amax_tile(plan: &QuantizePlan, tile: &Tile) {
    for copy in plan.copies().filter(|c| wants_amax(c)) {
        let (mut row, mut largest) = (0, 0f32);
        panel::for_each(plan, copy, tile, |p| {
            for (i, values) in p.values[..p.rows].iter().enumerate() {
                if copy.out.domain_of(row) != copy.out.domain_of(p.row + i) {
                    raise(copy, row, largest);
                    largest = 0.0;
                }
                row = p.row + i;
                largest = values[..p.cols].iter().fold(largest, |m, v| {
                    if v.is_finite() {
                        m.max(v.abs())
                    } else {
                        m
                    }
                });
            }
        });
        raise(copy, row, largest);
    }
}

pub fn quantize_tile(plan: &QuantizePlan, tile: &Tile) -> u64 {
    let mut saturated = [0, 0];
    for (copy, count) in plan.copies().zip(&mut saturated) {
        let encoder = Encoder::new(plan, copy);
        panel::for_each(plan, copy, tile, |p| *count += encoder.encode(p));
    }
    saturated[0]
}

/// Zeros the bytes of swizzled scales that stand for no row or block.
pub fn clear_scale_padding(out: &Quantized) {
    if out.scale_layout != ScaleLayout::Swizzled || out.scale_cols() == 0 {
        return;
    }
    let (cols, padded_cols) = (out.scale_cols(), out.scale_cols().next_multiple_of(4));
    let clear = |row, block| {
        // SAFETY: the plan checked that the scales hold whole tiles.
        unsafe { out.scales.add(out.scale_offset(row, block)).write(0) }
    };
    for row in 0..out.rows.next_multiple_of(128) {
        let first = if row < out.rows { cols } else { 0 };
        (first..padded_cols).for_each(|block| clear(row, block));
    }
}
