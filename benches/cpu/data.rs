//! Matrices and buffers of the benchmarks.

use nvfp4::cpu::Cpu;
use nvfp4::numerics::{Dtype, Format, Options};
use nvfp4::plan::quantize::{described, plan, Sizes};
use nvfp4::plan::{
    options, Buffers, Device, Matrix, QuantizePlan, QuantizeRequest, Quantized, Seed, Source,
};

/// A matrix of N(0, 1) values, near enough.
pub struct Dense {
    data: Vec<u32>,
    pub matrix: Matrix,
}

impl Dense {
    pub fn new(dtype: Dtype, rows: usize, cols: usize) -> Dense {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        // A million values, repeated: making them should not take longer than measuring.
        let normal: Vec<f32> = (0..1 << 20)
            .map(|_| {
                let mut sum = 0.0;
                for _ in 0..6 {
                    state = state
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    sum += (state >> 32) as u32 as i32 as f32 / 2147483648.0;
                }
                sum * 0.707
            })
            .collect();
        let n = rows * cols;
        let value = |i: usize| normal[(i + i / normal.len() * 977) % normal.len()];
        let half = |i: usize| match dtype {
            Dtype::F16 => half::f16::from_f32(value(i)).to_bits() as u32,
            _ => half::bf16::from_f32(value(i)).to_bits() as u32,
        };
        let mut data: Vec<u32> = match dtype {
            Dtype::F32 => (0..n).map(|i| value(i).to_bits()).collect(),
            _ => (0..n.div_ceil(2))
                .map(|i| half(2 * i) | half(2 * i + 1) << 16)
                .collect(),
        };
        let matrix = Matrix::new(
            "x",
            data.as_mut_ptr().cast(),
            dtype,
            rows as i64,
            cols as i64,
            0,
        )
        .expect("a matrix");
        Dense { data, matrix }
    }

    pub fn elements(&self) -> f64 {
        (self.matrix.rows * self.matrix.cols) as f64
    }

    /// Bytes of the elements.
    pub fn bytes(&self) -> f64 {
        4.0 * self.data.len() as f64
    }
}

/// A quantized matrix with its memory.
pub struct Packed {
    codes: Vec<u64>,
    scales: Vec<u8>,
    amax: Vec<f32>,
    pub view: Quantized,
}

impl Packed {
    /// Room for the copy of a [rows, cols] matrix (of its transpose).
    pub fn empty(o: &Options, rows: usize, cols: usize, columnwise: bool) -> Packed {
        let o = options::check("o", o).expect("legal options");
        let (rows, cols) = if columnwise {
            (cols, rows)
        } else {
            (rows, cols)
        };
        let shape = described(&o, rows, cols, columnwise);
        let s = Sizes::of(&shape);
        let mut packed = Packed {
            codes: vec![0; s.codes_bytes.div_ceil(8)],
            scales: vec![0; s.scales_bytes],
            amax: vec![1.0; s.amax_count],
            view: shape,
        };
        packed.view = shape.bind("q", &packed.buffers()).expect("the sizes fit");
        packed
    }

    /// The quantized copy of a matrix.
    pub fn new(cpu: &Cpu, o: &Options, x: &Dense) -> Packed {
        let mut packed = Packed::empty(o, x.matrix.rows, x.matrix.cols, false);
        let plan = quantize_plan(x, Some((o, &mut packed)), None, false);
        cpu.quantize(&plan).expect("a checked plan");
        packed
    }

    pub fn buffers(&mut self) -> Buffers {
        Buffers {
            codes: self.codes.as_mut_ptr().cast(),
            codes_bytes: 8 * self.codes.len(),
            scales: self.scales.as_mut_ptr(),
            scales_bytes: self.scales.len(),
            amax: self.amax.as_mut_ptr(),
            amax_count: self.amax.len(),
            code_stride: 0,
            scale_stride: 0,
        }
    }
}

/// The amax that the plans below are given: that of the data, about.
static GIVEN: f32 = 4.3;

/// A plan for quantizing into one or both copies, with a given amax or a computed one.
pub fn quantize_plan(
    x: &Dense,
    rowwise: Option<(&Options, &mut Packed)>,
    columnwise: Option<(&Options, &mut Packed)>,
    given: bool,
) -> QuantizePlan {
    let options = |copy: &Option<(&Options, &mut Packed)>| {
        copy.as_ref().map_or_else(Options::default, |c| *c.0)
    };
    let amax = if given {
        &raw const GIVEN
    } else {
        std::ptr::null()
    };
    let request = QuantizeRequest {
        rowwise: options(&rowwise),
        columnwise: options(&columnwise),
        seed: Seed::Host(1, 2),
        rowwise_amax: amax,
        columnwise_amax: amax,
        ..QuantizeRequest::default()
    };
    let (rowwise, columnwise) = (
        rowwise.map(|c| c.1.buffers()),
        columnwise.map(|c| c.1.buffers()),
    );
    plan(
        &request,
        Device::Cpu,
        Source::Matrix(x.matrix),
        rowwise.as_ref(),
        columnwise.as_ref(),
    )
    .expect("a legal call")
}

pub fn mxfp4() -> Options {
    Options {
        format: Format::Mxfp4,
        ..Options::default()
    }
}
