//! A panel becomes codes and scale bytes (docs/format.md, sections 2 to 9).

use super::decode::row_amax;
use super::panel::{rows_together, Panel, HEIGHT, WIDTH};
use crate::numerics::rounding::{bf16_bits, byte_of, stochastic, Draw};
use crate::numerics::scale::{
    block_scale, decode_factor, decode_value, encode_multiplier, scaled, tensor_scale, TensorScale,
};
use crate::numerics::{
    e2m1, e4m3, e8m0, four_over_six, ms_eden, Block, Dtype, Format, Nonfinite, Rounding, Select,
};
use crate::plan::{CopyPlan, QuantizePlan, Seed};

/// Seed and offset of a CPU call.
pub fn host_seed(seed: Seed) -> (u64, u64) {
    match seed {
        Seed::Host(seed, offset) => (seed, offset),
        Seed::Device(..) => unreachable!("a CPU context reads the seed before planning"),
    }
}

/// What one copy of one call needs to encode its panels.
pub struct Encoder<'a> {
    copy: &'a CopyPlan,
    nonfinite: Nonfinite,
    draw: Draw,
    /// Tiles without a transform are decided and drawn in the source's orientation, so that both copies hold the same
    /// codes.
    follows_source: bool,
}

/// Random bytes of one block or tile, in the copy's orientation.
type RandomBytes = [[u8; HEIGHT]; HEIGHT];

impl<'a> Encoder<'a> {
    pub fn new(plan: &QuantizePlan, copy: &'a CopyPlan) -> Self {
        let (seed, offset) = host_seed(plan.seed);
        Encoder::with_seed(copy, plan.nonfinite, seed, offset)
    }

    pub fn with_seed(copy: &'a CopyPlan, nonfinite: Nonfinite, seed: u64, offset: u64) -> Self {
        let follows_source = copy.options.block == Block::TwoD && copy.options.hadamard == 0;
        Encoder {
            copy,
            nonfinite,
            draw: Draw {
                seed,
                offset,
                columnwise: copy.columnwise && !follows_source,
            },
            follows_source,
        }
    }

    /// Writes the panel's codes and scale bytes; returns how many scaled magnitudes exceeded 6.
    pub fn encode(&self, panel: &Panel) -> u64 {
        if self.copy.options.format == Format::Bf16 {
            self.pass_through(panel);
            return 0;
        }
        let side = self.copy.options.format.block();
        let tile_rows = if self.copy.options.block == Block::TwoD {
            side
        } else {
            1
        };
        debug_assert!(tile_rows <= rows_together(self.copy));
        let mut saturated = 0;
        for first in (0..panel.rows).step_by(tile_rows) {
            let rows = tile_rows.min(panel.rows - first);
            let t = tensor_scale(
                &self.copy.options,
                row_amax(&self.copy.out, panel.row + first),
            );
            let mut codes = [[0u8; WIDTH]; HEIGHT];
            let mut bytes = [0u8; WIDTH / 16];
            let blocks = panel.cols.div_ceil(side);
            for (block, byte) in bytes[..blocks].iter_mut().enumerate() {
                let values = &panel.values[first..first + rows];
                let cols = side.min(panel.cols - block * side);
                let e;
                (*byte, e) = self.choose_scale(&t, values, block * side, side);
                // A block that is not finite keeps the codes 0.
                let Some(e) = e else { continue };
                saturated +=
                    self.encode_block(panel, first, rows, block * side, cols, e, &mut codes);
            }
            if self.copy.options.select == Select::MsEden {
                self.correct_scales(panel, first, &codes[0], &mut bytes);
            }
            for r in 0..rows {
                self.store(panel, first + r, &codes[r], &bytes[..blocks]);
            }
        }
        saturated
    }

    /// Scale byte of the block or tile whose columns start at `col`, and the multiplier of its elements; None if it
    /// holds a value that is not finite.
    fn choose_scale(
        &self,
        t: &TensorScale,
        values: &[[f32; WIDTH]],
        col: usize,
        side: usize,
    ) -> (u8, Option<f32>) {
        let o = &self.copy.options;
        let mut bits = 0u32;
        for row in values {
            // The magnitudes of floats order as their bits do, and a value that is not finite is above all others.
            let row_bits = row[col..col + side]
                .iter()
                .fold(0, |m: u32, v| m.max(v.to_bits() & 0x7FFF_FFFF));
            bits = bits.max(row_bits);
        }
        let b = f32::from_bits(bits);
        if !b.is_finite() {
            let byte = if o.format == Format::Mxfp4 {
                e8m0::NAN
            } else {
                e4m3::NAN
            };
            return (byte, None);
        }
        if !four_over_six::is_selected(o.select) {
            let (byte, e) = block_scale(o, b, t);
            return (byte, Some(e));
        }
        let mut tile = [[0f32; 16]; 16];
        let swap = self.copy.columnwise && self.follows_source;
        for (i, row) in values.iter().enumerate() {
            for (j, v) in row[col..col + 16].iter().enumerate() {
                let (i, j) = if swap { (j, i) } else { (i, j) };
                tile[i][j] = *v;
            }
        }
        let tile = if o.block == Block::TwoD {
            &tile[..]
        } else {
            &tile[..1]
        };
        let byte = four_over_six::block_scale(o, b, t, tile);
        (byte, Some(encode_multiplier(o, byte, t)))
    }

    #[allow(clippy::too_many_arguments)]
    fn encode_block(
        &self,
        panel: &Panel,
        first: usize,
        rows: usize,
        col: usize,
        cols: usize,
        e: f32,
        codes: &mut [[u8; WIDTH]; HEIGHT],
    ) -> u64 {
        let o = &self.copy.options;
        let mut random: RandomBytes = [[0; HEIGHT]; HEIGHT];
        if o.rounding == Rounding::Stochastic {
            self.draw_block(panel.row + first, rows, panel.col + col, cols, &mut random);
        }
        let mut saturated = 0;
        for (r, random) in random[..rows].iter().enumerate() {
            let x = &panel.values[first + r][col..col + cols];
            for ((x, code), random) in x.iter().zip(&mut codes[r][col..]).zip(random) {
                let v = scaled(o, *x, e);
                saturated += (v.abs() > e2m1::MAX) as u64;
                *code = match o.rounding {
                    Rounding::Nearest => nearest(v),
                    Rounding::Stochastic => stochastic(v, *random as u32),
                };
            }
        }
        saturated
    }

    /// Random bytes of elements (row.., col..) of the copy.
    fn draw_block(&self, row: usize, rows: usize, col: usize, cols: usize, out: &mut RandomBytes) {
        let swap = self.copy.columnwise && self.follows_source;
        // The origin is in the copy's orientation; so are row and col.
        let (row, col) = (
            self.copy.origin.0 + row as u64,
            self.copy.origin.1 + col as u64,
        );
        let (lines, from, line_length, length_from) = if swap {
            (cols, col, rows, row)
        } else {
            (rows, row, cols, col)
        };
        for line in 0..lines {
            for group in 0..line_length.div_ceil(16) {
                let words = self
                    .draw
                    .words(from + line as u64, length_from / 16 + group as u64);
                for i in 0..16.min(line_length - group * 16) {
                    let byte = byte_of(&words, i) as u8;
                    let (r, c) = if swap {
                        (group * 16 + i, line)
                    } else {
                        (line, group * 16 + i)
                    };
                    out[r][c] = byte;
                }
            }
        }
    }

    /// MS-EDEN's second step, for one row of a panel that is one transformed block.
    fn correct_scales(
        &self,
        panel: &Panel,
        r: usize,
        codes: &[u8; WIDTH],
        bytes: &mut [u8; WIDTH / 16],
    ) {
        let out = &self.copy.out;
        let d = out.decode_scale(row_amax(out, panel.row + r));
        let mut decoded = [0f32; WIDTH];
        for (i, v) in decoded.iter_mut().enumerate() {
            *v = decode_value(&d, codes[i], decode_factor(&d, bytes[i / 16]));
        }
        let correction = ms_eden::correction(&panel.values[r], &decoded);
        let row = self.copy.origin.0 + (panel.row + r) as u64;
        let group = (self.copy.origin.1 + panel.col as u64) / 16;
        for (i, byte) in bytes.iter_mut().enumerate() {
            let word = self.draw.words(row, group + i as u64)[0];
            *byte = ms_eden::correct_scale(*byte, correction, word);
        }
    }

    /// Packs the codes of one row of the panel and writes its scale bytes.
    fn store(&self, panel: &Panel, r: usize, codes: &[u8; WIDTH], bytes: &[u8]) {
        let out = &self.copy.out;
        let row = panel.row + r;
        // SAFETY: the panel lies inside the copy, whose buffers the plan checked; a panel's columns start at a
        // multiple of 128, so no other panel shares its bytes. Codes beyond the last column are 0.
        unsafe {
            let p = out.codes.add(row * out.code_stride + panel.col / 2);
            for i in 0..panel.cols.div_ceil(2) {
                p.add(i).write(codes[2 * i] | codes[2 * i + 1] << 4);
            }
            let block = panel.col / self.copy.options.format.block();
            for (i, byte) in bytes.iter().enumerate() {
                out.scales
                    .add(out.scale_offset(row, block + i))
                    .write(*byte);
            }
        }
    }

    /// The BF16 format. Under SATURATE the cast saturates too.
    fn pass_through(&self, panel: &Panel) {
        let out = &self.copy.out;
        for r in 0..panel.rows {
            for (i, v) in panel.values[r][..panel.cols].iter().enumerate() {
                let v = match self.nonfinite {
                    Nonfinite::Propagate => *v,
                    Nonfinite::Saturate => v.clamp(-Dtype::Bf16.max(), Dtype::Bf16.max()),
                };
                let at = (panel.row + r) * out.code_stride + 2 * (panel.col + i);
                // SAFETY: inside the copy, whose buffers (2-byte aligned) the plan checked.
                unsafe { out.codes.add(at).cast::<u16>().write(bf16_bits(v)) };
            }
        }
    }
}

/// Nearest code, ties to even, saturating: `e2m1::encode` without branches, for values that are not NaN.
fn nearest(v: f32) -> u8 {
    let a = v.abs();
    let magnitude = (a > 0.25) as u8
        + (a >= 0.75) as u8
        + (a > 1.25) as u8
        + (a >= 1.75) as u8
        + (a > 2.5) as u8
        + (a >= 3.5) as u8
        + (a > 5.0) as u8;
    magnitude | ((v.to_bits() >> 28) & 8) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_is_the_contracts() {
        let grid = (0..=14000).map(|i| i as f32 / 2048.0);
        let ends = [f32::MAX, f32::INFINITY, f32::from_bits(1), 0.0];
        for v in grid.chain(ends) {
            for v in [
                v,
                v.next_up(),
                v.next_down(),
                -v,
                -v.next_up(),
                -v.next_down(),
            ] {
                if !v.is_nan() {
                    assert_eq!(nearest(v), e2m1::encode(v), "{v:e}");
                }
            }
        }
    }
}
