//! Accumulators of the less common kinds: a pair with a BF16 operand, and the HARDWARE model.

use super::gemm::{GemmScratch, Product, TILE_COLS};
use super::{decode, Tile};
use crate::numerics::rounding::bf16_value;
use crate::numerics::{
    e2m1, e4m3, e8m0, gemm_hardware, layout, matrix, Accumulate, Format, Options,
};
use crate::plan::Quantized;

/// Elements along K at a time.
const DEPTH: usize = 512;

/// A pair with a BF16 operand: fused multiply-adds over single elements in ascending k from +0.
pub fn tile(product: &Product, tile: &Tile, scratch: &mut GemmScratch) {
    scratch.reserve_values();
    scratch.acc.fill(0.0);
    let mut line = [0f32; DEPTH];
    for k in (0..product.plan.k).step_by(DEPTH) {
        let depth = DEPTH.min(product.plan.k - k);
        for (i, row) in tile.rows.clone().enumerate() {
            inner_values(
                &product.a,
                row,
                k,
                &mut scratch.a_values[i * DEPTH..][..depth],
            );
        }
        for (j, row) in tile.cols.clone().enumerate() {
            inner_values(&product.b, row, k, &mut line[..depth]);
            for (kk, v) in line[..depth].iter().enumerate() {
                scratch.b_values[kk * TILE_COLS + j] = *v;
            }
        }
        for i in 0..tile.rows.len() {
            let acc: &mut [f32; TILE_COLS] = (&mut scratch.acc[i * TILE_COLS..][..TILE_COLS])
                .try_into()
                .expect("a row of the tile");
            let a = &scratch.a_values[i * DEPTH..][..depth];
            fused_rows(acc, a, &scratch.b_values);
        }
    }
}

/// acc[j] = fma(a[k], b[k][j], acc[j]) for ascending k.
fn fused_rows(acc: &mut [f32; TILE_COLS], a: &[f32], b: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("fma") && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has both features.
        return unsafe { fused_rows_fma(acc, a, b) };
    }
    fused_rows_anywhere(acc, a, b);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fused_rows_fma(acc: &mut [f32; TILE_COLS], a: &[f32], b: &[f32]) {
    fused_rows_anywhere(acc, a, b);
}

#[inline(always)]
fn fused_rows_anywhere(acc: &mut [f32; TILE_COLS], a: &[f32], b: &[f32]) {
    for (x, row) in a.iter().zip(b.chunks_exact(TILE_COLS)) {
        for (acc, y) in acc.iter_mut().zip(row) {
            *acc = x.mul_add(*y, *acc);
        }
    }
}

/// Elements without their outer scale: code times block scale, or the bf16 value.
fn inner_values(q: &Quantized, row: usize, col: usize, out: &mut [f32]) {
    let codes = decode::code_row(q, row);
    for (c, o) in (col..).zip(out.iter_mut()) {
        *o = match q.format {
            Format::Bf16 => bf16_value(u16::from_le_bytes([codes[2 * c], codes[2 * c + 1]])),
            Format::Nvfp4 => {
                e2m1::decode(e2m1::get(codes, c)) * e4m3::decode(decode::scale_byte(q, row, c / 16))
            }
            Format::Mxfp4 => {
                e2m1::decode(e2m1::get(codes, c)) * e8m0::decode(decode::scale_byte(q, row, c / 32))
            }
        };
    }
}

/// The HARDWARE model, by the contract's own code on a copy of the tile's rows.
pub fn hardware_tile(product: &Product, tile: &Tile, scratch: &mut GemmScratch) {
    let step = match product.plan.accumulate {
        Accumulate::HardwareK96 => gemm_hardware::K96,
        _ => gemm_hardware::K64,
    };
    let a = owned_rows(&product.a, tile.rows.clone());
    let b = owned_rows(&product.b, tile.cols.clone());
    let acc = gemm_hardware::accumulate(&a, &b, step)
        .expect("the plan refuses what the model does not have");
    for (i, row) in acc.chunks_exact(tile.cols.len().max(1)).enumerate() {
        scratch.acc[i * TILE_COLS..][..row.len()].copy_from_slice(row);
    }
}

fn owned_rows(q: &Quantized, rows: std::ops::Range<usize>) -> matrix::Quantized {
    let options = Options {
        format: q.format,
        chain: q.chain,
        scale_rule: q.scale_rule,
        c: q.c,
        ..Options::default()
    };
    let mut out = matrix::Quantized {
        rows: rows.len(),
        cols: q.cols,
        source_cols: q.source_cols,
        codes: Vec::with_capacity(rows.len() * layout::code_row_bytes(q.format, q.cols)),
        scales: Vec::with_capacity(rows.len() * q.scale_cols()),
        amax: if q.domains() > 0 {
            vec![1.0]
        } else {
            Vec::new()
        },
        options,
        signs: q.sign_words,
        transposed: q.transposed,
    };
    for row in rows {
        out.codes.extend_from_slice(decode::code_row(q, row));
        out.scales
            .extend((0..q.scale_cols()).map(|block| decode::scale_byte(q, row, block)));
    }
    out
}
