//! Quantized copies in the caller's buffers, made through the C ABI and compared with the contract.

use super::{c_options, ok, zero, Ctx, Dense};
use nvfp4::abi::*;
use nvfp4::ffi::*;
use nvfp4::numerics::quantize::Call;
use nvfp4::numerics::*;

/// A quantized copy in buffers of the C ABI, with a guard around each that must stay as it was.
#[derive(Clone, Debug)]
pub struct Packed {
    pub codes: Vec<u8>,
    pub scales: Vec<u8>,
    pub amax: Vec<f32>,
    pub q: nvfp4_quantized,
    code_room: usize,
    scale_room: usize,
}

// SAFETY: the pointers in `q` are into its own vectors.
unsafe impl Send for Packed {}
// SAFETY: as above.
unsafe impl Sync for Packed {}

const GUARD: usize = 64;

impl Packed {
    /// Buffers for a copy under `o` of a [rows, cols] matrix (in the copy's orientation), filled with `poison`.
    pub fn room(o: &Options, rows: usize, cols: usize, poison: u8, pad: usize) -> Packed {
        let cols = if o.hadamard == 0 {
            cols
        } else {
            cols.next_multiple_of(o.hadamard as usize)
        };
        let row_bytes = layout::code_row_bytes(o.format, cols);
        let blocks = layout::scale_cols(o.format, cols);
        let (code_stride, scale_stride) = (row_bytes + 2 * pad, blocks + pad);
        let code_room = if rows == 0 {
            0
        } else {
            (rows - 1) * code_stride + row_bytes
        };
        let scale_room = match o.scale_layout {
            ScaleLayout::Linear if rows == 0 => 0,
            ScaleLayout::Linear => (rows - 1) * scale_stride + blocks,
            ScaleLayout::Swizzled => layout::scale_bytes(ScaleLayout::Swizzled, rows, blocks),
        };
        let domains = matrix::amax_count(o, rows);
        let mut q: nvfp4_quantized = zero();
        q.codes_bytes = code_room;
        q.scales_bytes = scale_room;
        q.amax_count = domains;
        if pad > 0 {
            q.code_stride = code_stride as i64;
            q.scale_stride = scale_stride as i64;
        }
        let poison_f32 = f32::from_bits(u32::from_ne_bytes([poison; 4]));
        Packed {
            codes: vec![poison; code_room + GUARD],
            scales: vec![poison; scale_room + GUARD],
            amax: vec![poison_f32; domains],
            q,
            code_room,
            scale_room,
        }
    }

    /// The C struct, its pointers up to date.
    pub fn c(&mut self) -> *mut nvfp4_quantized {
        self.q.codes = self.codes.as_mut_ptr().cast();
        self.q.scales = self.scales.as_mut_ptr().cast();
        self.q.amax = self.amax.as_mut_ptr();
        &mut self.q
    }

    /// The bytes of an exact copy as the contract has it, packed, with everything else checked to be poison.
    #[track_caller]
    pub fn expect(&self, want: &matrix::Quantized, poison: u8, what: &str) {
        let o = &want.options;
        let q = &self.q;
        assert_eq!(
            (q.rows, q.cols),
            (want.rows as i64, want.cols as i64),
            "{what}: shape"
        );
        assert_eq!(
            (q.format, q.block, q.chain, q.scale_layout, q.hadamard),
            (
                o.format as u32,
                o.block as u32,
                o.chain as u32,
                o.scale_layout as u32,
                o.hadamard
            ),
            "{what}: options"
        );
        assert_eq!(q.sign_mask, want.signs, "{what}: signs");
        assert_eq!(q.transposed, want.transposed as u32, "{what}: orientation");
        assert_eq!(
            q.source_cols, want.source_cols as i64,
            "{what}: source columns"
        );
        assert_eq!(
            self.amax.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
            want.amax.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
            "{what}: amax {:?} against {:?}",
            self.amax,
            want.amax
        );
        let row_bytes = layout::code_row_bytes(o.format, want.cols);
        let blocks = layout::scale_cols(o.format, want.cols);
        let stride = if q.code_stride == 0 {
            row_bytes
        } else {
            q.code_stride as usize
        };
        let expected = spread(
            &want.codes,
            want.rows,
            row_bytes,
            stride,
            self.codes.len(),
            poison,
        );
        same(&self.codes, &expected, |i| {
            format!(
                "{what}: code byte {i}, row {}, element {}",
                i / stride.max(1),
                i % stride.max(1) * 2
            )
        });
        let expected = match o.scale_layout {
            ScaleLayout::Swizzled => {
                let mut all = want.scales.clone();
                all.resize(self.scales.len(), poison);
                all
            }
            ScaleLayout::Linear => {
                let stride = if q.scale_stride == 0 {
                    blocks
                } else {
                    q.scale_stride as usize
                };
                spread(
                    &want.scales,
                    want.rows,
                    blocks,
                    stride,
                    self.scales.len(),
                    poison,
                )
            }
        };
        same(&self.scales, &expected, |i| {
            format!("{what}: scale byte {i}")
        });
    }

    /// The contract's owned form of what the buffers hold.
    pub fn owned(&self, options: &Options) -> matrix::Quantized {
        let q = &self.q;
        let (rows, cols) = (q.rows as usize, q.cols as usize);
        let options = scale::resolve(options);
        let row_bytes = layout::code_row_bytes(options.format, cols);
        let blocks = layout::scale_cols(options.format, cols);
        let gather = |from: &[u8], width: usize, stride: i64| -> Vec<u8> {
            let stride = if stride == 0 { width } else { stride as usize };
            (0..rows)
                .flat_map(|r| from[r * stride..][..width].to_vec())
                .collect()
        };
        matrix::Quantized {
            rows,
            cols,
            source_cols: q.source_cols as usize,
            codes: gather(&self.codes, row_bytes, q.code_stride),
            scales: match options.scale_layout {
                ScaleLayout::Linear => gather(&self.scales, blocks, q.scale_stride),
                ScaleLayout::Swizzled => self.scales[..self.scale_room].to_vec(),
            },
            amax: self.amax.clone(),
            options,
            signs: q.sign_mask,
            transposed: q.transposed == 1,
        }
    }
}

fn spread(
    packed: &[u8],
    rows: usize,
    width: usize,
    stride: usize,
    len: usize,
    poison: u8,
) -> Vec<u8> {
    let mut out = vec![poison; len];
    for r in 0..rows {
        out[r * stride..][..width].copy_from_slice(&packed[r * width..][..width]);
    }
    out
}

/// Equal bytes, or the first that differs.
#[track_caller]
pub fn same(have: &[u8], want: &[u8], at: impl Fn(usize) -> String) {
    assert_eq!(have.len(), want.len());
    if let Some(i) = (0..have.len()).find(|i| have[*i] != want[*i]) {
        panic!(
            "{}: {:#04x}, the contract has {:#04x}",
            at(i),
            have[i],
            want[i]
        );
    }
}

/// Quantizes through the C ABI into buffers filled with `poison`.
#[track_caller]
pub fn quantize(
    ctx: &Ctx,
    desc: &nvfp4_quantize_desc,
    x: &Dense,
    rowwise: Option<&mut Packed>,
    columnwise: Option<&mut Packed>,
) {
    let null = std::ptr::null_mut();
    let x = x.c();
    // SAFETY: valid buffers of the sizes they say.
    ok(unsafe {
        nvfp4_quantize(
            ctx.0,
            desc,
            &x,
            rowwise.map_or(null, |c| c.c()),
            columnwise.map_or(null, |c| c.c()),
            std::ptr::null_mut(),
        )
    });
}

/// One copy of x under options, through the C ABI.
#[track_caller]
pub fn quantize_one(
    ctx: &Ctx,
    o: &Options,
    x: &Dense,
    columnwise: bool,
    given: Option<&[f32]>,
) -> Packed {
    let call = Call {
        options: *o,
        columnwise,
        amax: given,
        ..Call::default()
    };
    quantize_call(ctx, &call, x)
}

/// One copy as a call of the contract describes it, through the C ABI.
#[track_caller]
pub fn quantize_call(ctx: &Ctx, call: &Call, x: &Dense) -> Packed {
    let desc = desc_of(call);
    let (rows, cols) = if call.columnwise {
        (x.cols, x.rows)
    } else {
        (x.rows, x.cols)
    };
    let mut copy = Packed::room(&call.options, rows, cols, 0xFF, 0);
    if call.columnwise {
        quantize(ctx, &desc, x, None, Some(&mut copy));
    } else {
        quantize(ctx, &desc, x, Some(&mut copy), None);
    }
    copy
}

/// The C descriptor of a call of the contract; both copies get its options and amax.
pub fn desc_of(call: &Call) -> nvfp4_quantize_desc {
    let mut desc: nvfp4_quantize_desc = zero();
    desc.rowwise = c_options(&call.options);
    desc.columnwise = c_options(&call.options);
    desc.nonfinite = call.nonfinite as u32;
    desc.seed = call.seed;
    desc.offset = call.offset;
    desc.origin_row = call.origin.0 as i64;
    desc.origin_col = call.origin.1 as i64;
    if let Some(given) = call.amax {
        desc.rowwise_amax = given.as_ptr();
        desc.columnwise_amax = given.as_ptr();
    }
    desc
}
