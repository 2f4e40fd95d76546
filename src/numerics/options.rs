//! Names of the contract's choices, as Rust enums. Their `#[default]` is what zero means in C.

/// Element type of an unquantized matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dtype {
    #[default]
    F32,
    Bf16,
    F16,
}

impl Dtype {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Dtype::F32 => 4,
            Dtype::Bf16 | Dtype::F16 => 2,
        }
    }
    /// Largest finite value.
    pub const fn max(self) -> f32 {
        match self {
            Dtype::F32 => f32::MAX,
            Dtype::Bf16 => f32::from_bits(0x7F7F_0000),
            Dtype::F16 => 65504.0,
        }
    }
}

/// Format of a quantized matrix (sections 2 and 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    #[default]
    Nvfp4,
    Mxfp4,
    /// bfloat16 values, no scales: the pass-through of the `bf16` recipe.
    Bf16,
}

impl Format {
    /// Elements that share a scale along a row; 1 where there are no scales.
    pub const fn block(self) -> usize {
        match self {
            Format::Nvfp4 => 16,
            Format::Mxfp4 => 32,
            Format::Bf16 => 1,
        }
    }
}

/// Shape of a block: along the row, or a square tile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Block {
    #[default]
    OneD,
    TwoD,
}

/// Scale chain of NVFP4 (section 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Chain {
    #[default]
    Te,
    Div6,
    Single,
}

/// Exponent rule of MXFP4 (section 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ScaleRule {
    #[default]
    Floor,
    Ceil,
    Even,
    EncodeCentric,
}

/// How a scaled value becomes a code (sections 1 and 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rounding {
    #[default]
    Nearest,
    Stochastic,
}

/// Order of scale bytes in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ScaleLayout {
    #[default]
    Linear,
    Swizzled,
}

/// Signs of the Hadamard transform (section 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Signs {
    /// 0xD7E8, repeated.
    #[default]
    Default,
    /// Sixteen bits, repeated.
    Mask16(u16),
    /// All n bits: bit i of word i / 32.
    Mask([u32; 4]),
    /// Drawn from (seed, offset) of the call.
    Seeded,
}

/// What becomes of NaN and Inf (section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Nonfinite {
    #[default]
    Propagate,
    Saturate,
}

/// Choice of the block scale (sections 8 and 9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Select {
    #[default]
    Single,
    FourOverSixMae,
    FourOverSixMse,
    FourOverSixAbsMax,
    MsEden,
}

/// Numerics of a GEMM's accumulator (section 10). `Default` is Block on the CPU and Fast on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Accumulate {
    #[default]
    Default,
    Fast,
    Block,
    Hardware,
    HardwareK96,
}

/// Activation in a GEMM's epilogue (section 10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activation {
    #[default]
    None,
    Gelu,
    Silu,
    Relu2,
}

/// How one copy of a matrix is quantized.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    pub format: Format,
    pub block: Block,
    pub chain: Chain,
    pub scale_rule: ScaleRule,
    pub rounding: Rounding,
    pub scale_layout: ScaleLayout,
    pub select: Select,
    /// Length of the Hadamard transform: 0, 16, 32, 64 or 128.
    pub hadamard: u32,
    pub signs: Signs,
    /// The transform's output stays f32 instead of being rounded to bf16.
    pub keep_f32: bool,
    /// Encode with 16/17 of the multiplier (section 7).
    pub range_16_17: bool,
    /// MXFP4 ENCODE_CENTRIC tiles: half the scale iff amax / scale < 0.87.
    pub half_scale: bool,
    /// Rows that share one amax; 0 = the whole tensor.
    pub domain_rows: usize,
    /// C of section 2; 0 = 2688 (4/6: 1536).
    pub c: f32,
}
