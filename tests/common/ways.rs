//! Every way into the library, for one matrix.

use super::{ok, quantize_one, Ctx, Dense};
use nvfp4::ffi::*;
use nvfp4::numerics::*;

/// A quantized matrix by one way into the library, and what the library says it decodes to.
pub struct Way {
    pub name: String,
    pub q: matrix::Quantized,
    pub values: Vec<f32>,
}

impl Way {
    /// Codes of a row.
    pub fn codes(&self, row: usize) -> Vec<u8> {
        (0..self.q.cols).map(|c| self.q.code(row, c)).collect()
    }
    /// Scale bytes of a row.
    pub fn scales(&self, row: usize) -> Vec<u8> {
        let block = self.q.options.format.block();
        (0..self.q.cols.div_ceil(block))
            .map(|b| self.q.scale_byte(row, b))
            .collect()
    }
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.q.cols..][..self.q.cols]
    }
}

/// x quantized by every entry point: C rowwise and columnwise (of the transposed matrix, so that the copy is the same
/// one) at one and three threads, either scale layout, and the safe Rust API.
#[track_caller]
pub fn every_way(o: &Options, x: &Dense, given: Option<&[f32]>) -> Vec<Way> {
    let mut ways = Vec::new();
    for threads in [1, 3] {
        let ctx = Ctx::new(threads);
        for columnwise in [false, true] {
            for scale_layout in [ScaleLayout::Linear, ScaleLayout::Swizzled] {
                let o = Options { scale_layout, ..*o };
                let source = if columnwise {
                    x.transposed()
                } else {
                    x.clone()
                };
                let mut copy = quantize_one(&ctx, &o, &source, columnwise, given);
                let out = Dense::filled(
                    Dtype::F32,
                    copy.q.rows as usize,
                    copy.q.cols as usize,
                    || 99.0,
                );
                let view = out.c();
                // SAFETY: a valid operand and room.
                ok(unsafe { nvfp4_dequantize(ctx.0, copy.c(), 0, &view, std::ptr::null_mut()) });
                ways.push(Way {
                    name: format!(
                        "C, columnwise {columnwise}, {scale_layout:?}, {threads} threads, {:?}",
                        x.dtype
                    ),
                    q: copy.owned(&o),
                    values: out.values(),
                });
            }
        }
    }
    ways.push(rust_way(o, x, given));
    ways
}

fn rust_way(o: &Options, x: &Dense, given: Option<&[f32]>) -> Way {
    let ctx = nvfp4::Context::cpu(2);
    let tensor = nvfp4::Tensor::from_f32(x.rows, x.cols, x.values())
        .unwrap()
        .to(x.dtype);
    let call = nvfp4::Quantize {
        rowwise: Some(*o),
        rowwise_amax: given,
        ..Default::default()
    };
    let q = nvfp4::quantize_with(&ctx, &tensor, &call)
        .unwrap()
        .0
        .unwrap();
    let mut values = nvfp4::dequantize(&ctx, &q, Dtype::F32).unwrap().to_f32();
    // Without a transform's padding; put it back as zeros.
    if q.cols() != q.source_cols() {
        let rows = values.chunks(q.source_cols().max(1)).map(|r| {
            let mut r = r.to_vec();
            r.resize(q.cols(), 0.0);
            r
        });
        values = rows.flatten().collect();
    }
    Way {
        name: "Rust".into(),
        q: matrix::Quantized {
            rows: q.rows(),
            cols: q.cols(),
            source_cols: q.source_cols(),
            codes: q.codes().to_vec(),
            scales: q.scales().to_vec(),
            amax: q.amax().to_vec(),
            options: *q.options(),
            signs: q.sign_words(),
            transposed: q.is_transposed(),
        },
        values,
    }
}
