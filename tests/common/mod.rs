//! What the tests of the library share: data, and calls through the C ABI compared with the scalar contract.
#![allow(dead_code)]

use std::ffi::{c_void, CStr};
use std::mem::{size_of, zeroed};

use nvfp4::abi::*;
use nvfp4::ffi::*;
use nvfp4::numerics::matrix::{self, Elements};
use nvfp4::numerics::quantize::Call;
use nvfp4::numerics::rounding::{bf16_bits, f16_bits};
use nvfp4::numerics::*;

/// A small generator of test data (xorshift64*), seeded.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    pub fn below(&mut self, n: usize) -> usize {
        (((self.bits() >> 32) * n as u64) >> 32) as usize
    }
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
    /// N(0, 1), by Box and Muller.
    pub fn normal(&mut self) -> f32 {
        let (u, v) = (1.0 - self.unit(), self.unit());
        ((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()) as f32
    }
}

/// Kinds of data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Normal,
    /// Magnitudes over 60 octaves.
    Wide,
    /// Half codes, quarters and other ties at power-of-two scales.
    Ties,
    /// Subnormals, the largest values, zeros of both signs.
    Extremes,
    /// Extremes and values that are not finite.
    Nonfinite,
    /// Mostly zero.
    Sparse,
    Zero,
}

pub const KINDS: [Kind; 7] = [
    Kind::Normal,
    Kind::Wide,
    Kind::Ties,
    Kind::Extremes,
    Kind::Nonfinite,
    Kind::Sparse,
    Kind::Zero,
];

impl Kind {
    pub fn value(self, random: &mut Random) -> f32 {
        match self {
            Kind::Normal => random.normal(),
            Kind::Wide => random.normal() * 2f32.powi(random.below(60) as i32 - 30),
            Kind::Ties => {
                (random.below(49) as f32 * 0.25 - 6.0) * 2f32.powi(random.below(4) as i32)
            }
            Kind::Extremes => random.pick(&[
                0.0,
                -0.0,
                f32::from_bits(1),
                -f32::from_bits(0x7F_FFFF),
                1e-38,
                -3e38,
                f32::MAX,
                1.0,
                -6.0,
                65504.0,
            ]),
            Kind::Nonfinite => match random.below(40) {
                0 => f32::NAN,
                1 => f32::INFINITY,
                2 => f32::NEG_INFINITY,
                3 => Kind::Extremes.value(random),
                _ => random.normal(),
            },
            Kind::Sparse => [0.0, 0.0, 0.0, random.normal()][random.below(4)],
            Kind::Zero => 0.0,
        }
    }
}

/// An unquantized matrix whose rows are `stride` elements apart and that starts `shift` elements into its memory.
/// Elements outside it are NaN.
#[derive(Clone, Debug)]
pub struct Dense {
    pub dtype: Dtype,
    pub rows: usize,
    pub cols: usize,
    pub stride: usize,
    pub shift: usize,
    pub f32s: Vec<f32>,
    pub u16s: Vec<u16>,
}

impl Dense {
    pub fn new(dtype: Dtype, rows: usize, cols: usize, stride: usize, shift: usize) -> Dense {
        assert!(stride >= cols);
        let len = shift + rows * stride;
        let wide = dtype == Dtype::F32;
        Dense {
            dtype,
            rows,
            cols,
            stride,
            shift,
            f32s: if wide {
                vec![f32::NAN; len]
            } else {
                Vec::new()
            },
            u16s: if wide { Vec::new() } else { vec![0x7FFF; len] },
        }
    }

    pub fn filled(dtype: Dtype, rows: usize, cols: usize, values: impl FnMut() -> f32) -> Dense {
        Dense::new(dtype, rows, cols, cols, 0).fill(values)
    }

    pub fn from(rows: usize, cols: usize, values: &[f32]) -> Dense {
        let mut values = values.iter().copied();
        Dense::filled(Dtype::F32, rows, cols, || values.next().unwrap())
    }

    pub fn fill(mut self, mut values: impl FnMut() -> f32) -> Dense {
        for r in 0..self.rows {
            for c in 0..self.cols {
                self.set(r, c, values());
            }
        }
        self
    }

    pub fn set(&mut self, r: usize, c: usize, v: f32) {
        let i = self.shift + r * self.stride + c;
        match self.dtype {
            Dtype::F32 => self.f32s[i] = v,
            Dtype::Bf16 => self.u16s[i] = bf16_bits(v),
            Dtype::F16 => self.u16s[i] = f16_bits(v),
        }
    }

    pub fn get(&self, r: usize, c: usize) -> f32 {
        self.reference().at(r, c)
    }

    /// All elements as f32, packed.
    pub fn values(&self) -> Vec<f32> {
        (0..self.rows * self.cols)
            .map(|i| self.get(i / self.cols, i % self.cols))
            .collect()
    }

    pub fn transposed(&self) -> Dense {
        let mut t = Dense::new(self.dtype, self.cols, self.rows, self.rows, 0);
        for r in 0..self.rows {
            for c in 0..self.cols {
                t.set(c, r, self.get(r, c));
            }
        }
        t
    }

    /// Rows and columns cut out of it, in their own memory.
    pub fn slice(&self, rows: std::ops::Range<usize>, cols: std::ops::Range<usize>) -> Dense {
        let mut s = Dense::new(self.dtype, rows.len(), cols.len(), cols.len(), 0);
        for r in rows.clone() {
            for c in cols.clone() {
                s.set(r - rows.start, c - cols.start, self.get(r, c));
            }
        }
        s
    }

    /// As the contract sees it.
    pub fn reference(&self) -> matrix::Matrix<'_> {
        let data = match self.dtype {
            Dtype::F32 => Elements::F32(&self.f32s[self.shift..]),
            Dtype::Bf16 => Elements::Bf16(&self.u16s[self.shift..]),
            Dtype::F16 => Elements::F16(&self.u16s[self.shift..]),
        };
        matrix::Matrix {
            data,
            rows: self.rows,
            cols: self.cols,
            stride: self.stride,
        }
    }

    /// As C sees it.
    pub fn c(&self) -> nvfp4_matrix {
        let data = match self.dtype {
            Dtype::F32 => self.f32s[self.shift..].as_ptr().cast::<c_void>(),
            _ => self.u16s[self.shift..].as_ptr().cast::<c_void>(),
        };
        nvfp4_matrix {
            struct_size: size_of::<nvfp4_matrix>(),
            data: data.cast_mut(),
            dtype: self.dtype as u32,
            reserved: 0,
            rows: self.rows as i64,
            cols: self.cols as i64,
            stride: self.stride as i64,
        }
    }

    /// The bits of every element, padding included: to see that nothing else was written.
    pub fn bits(&self) -> Vec<u32> {
        let wide = self.f32s.iter().map(|v| v.to_bits());
        wide.chain(self.u16s.iter().map(|v| *v as u32)).collect()
    }
}

/// A context of the C ABI.
pub struct Ctx(pub *mut nvfp4_context);

// SAFETY: a context may be used from many threads.
unsafe impl Send for Ctx {}
// SAFETY: as above.
unsafe impl Sync for Ctx {}

impl Ctx {
    pub fn new(threads: u32) -> Ctx {
        let desc = nvfp4_context_desc {
            struct_size: size_of::<nvfp4_context_desc>(),
            device: NVFP4_DEVICE_CPU,
            ordinal: 0,
            threads,
            reserved: 0,
        };
        let mut ctx = std::ptr::null_mut();
        // SAFETY: valid pointers.
        assert_eq!(unsafe { nvfp4_context_create(&desc, &mut ctx) }, NVFP4_OK);
        Ctx(ctx)
    }
}

impl Drop for Ctx {
    fn drop(&mut self) {
        // SAFETY: made by nvfp4_context_create.
        unsafe { nvfp4_context_destroy(self.0) };
    }
}

/// The last error's sentence.
pub fn last_error() -> String {
    // SAFETY: a NUL-terminated string of this thread.
    unsafe { CStr::from_ptr(nvfp4_last_error()) }
        .to_str()
        .unwrap()
        .to_owned()
}

#[track_caller]
pub fn ok(status: nvfp4_status) {
    assert_eq!(status, NVFP4_OK, "{}", last_error());
}

/// The call failed with this status, and its sentence holds these words.
#[track_caller]
pub fn fails(status: nvfp4_status, want: nvfp4_status, words: &[&str]) {
    let text = last_error();
    assert_eq!(status, want, "{text}");
    for word in words {
        assert!(text.contains(word), "{text:?} does not hold {word:?}");
    }
}

/// A descriptor, all zero but its size.
pub fn zero<T>() -> T {
    // SAFETY: only used for the ABI's plain descriptors, for which all zero is valid; each starts with its size.
    unsafe {
        let mut value: T = zeroed();
        (&mut value as *mut T).cast::<usize>().write(size_of::<T>());
        value
    }
}

/// Rust options as C has them.
pub fn c_options(o: &Options) -> nvfp4_options {
    let (signs, sign_mask) = match o.signs {
        Signs::Default => (NVFP4_SIGNS_DEFAULT, [0; 4]),
        Signs::Mask16(m) => (NVFP4_SIGNS_MASK16, [m as u32, 0, 0, 0]),
        Signs::Mask(m) => (NVFP4_SIGNS_MASK, m),
        Signs::Seeded => (NVFP4_SIGNS_SEEDED, [0; 4]),
    };
    let mut c: nvfp4_options = zero();
    c.format = o.format as u32;
    c.block = o.block as u32;
    c.chain = o.chain as u32;
    c.scale_rule = o.scale_rule as u32;
    c.rounding = o.rounding as u32;
    c.scale_layout = o.scale_layout as u32;
    c.select = o.select as u32;
    c.hadamard = o.hadamard;
    c.signs = signs;
    c.sign_mask = sign_mask;
    c.flags = if o.keep_f32 { NVFP4_KEEP_F32 } else { 0 }
        | if o.range_16_17 { NVFP4_RANGE_16_17 } else { 0 }
        | if o.half_scale { NVFP4_MX_HALF_SCALE } else { 0 };
    c.domain_rows = o.domain_rows as i64;
    c.c = o.c;
    c
}

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

/// Within `ulps` units in the last place of f32.
#[track_caller]
pub fn near(have: f32, want: f32, ulps: u32, what: &str) {
    let key = |v: f32| {
        let bits = v.to_bits() as i32;
        if bits < 0 {
            i32::MIN - bits
        } else {
            bits
        }
    };
    let distance = (key(have) as i64 - key(want) as i64).unsigned_abs();
    assert!(
        have.is_finite() && distance <= ulps as u64,
        "{what}: {have:e}, want {want:e} within {ulps} ulp"
    );
}

/// Runs a test of this binary again with the scalar kernels, where the processor would choose faster ones.
#[track_caller]
pub fn again_in_scalar(test: &str) {
    let run = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env("NVFP4_CPU_ISA", "scalar")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success() && text.contains("1 passed"),
        "with scalar kernels:\n{text}"
    );
}
