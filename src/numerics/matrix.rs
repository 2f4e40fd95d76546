//! Views of an unquantized matrix, and the owned result of a quantizer.

use super::rounding::{bf16_value, f16_value};
use super::scale::{decode_factor, decode_value, DecodeScale};
use super::{e2m1, layout, Chain, Dtype, Format, Options};

/// Elements of an unquantized matrix; 16-bit types by their bits.
#[derive(Clone, Copy, Debug)]
pub enum Elements<'a> {
    F32(&'a [f32]),
    Bf16(&'a [u16]),
    F16(&'a [u16]),
}

/// An unquantized matrix, row-major, rows `stride` elements apart.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    pub data: Elements<'a>,
    pub rows: usize,
    pub cols: usize,
    pub stride: usize,
}

impl<'a> Matrix<'a> {
    /// A matrix without padding between its rows.
    pub fn new(data: Elements<'a>, rows: usize, cols: usize) -> Self {
        Matrix {
            data,
            rows,
            cols,
            stride: cols,
        }
    }

    /// A matrix of f32 without padding between its rows.
    pub fn f32(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Matrix::new(Elements::F32(data), rows, cols)
    }

    pub fn dtype(&self) -> Dtype {
        match self.data {
            Elements::F32(_) => Dtype::F32,
            Elements::Bf16(_) => Dtype::Bf16,
            Elements::F16(_) => Dtype::F16,
        }
    }

    /// Element (row, col) as f32, which is exact.
    pub fn at(&self, row: usize, col: usize) -> f32 {
        let i = row * self.stride + col;
        match self.data {
            Elements::F32(d) => d[i],
            Elements::Bf16(d) => bf16_value(d[i]),
            Elements::F16(d) => f16_value(d[i]),
        }
    }
}

/// One quantized copy with everything that decoding needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantized {
    /// Shape of this copy: a columnwise one of an [R, C] matrix has rows = C; a transform pads the columns.
    pub rows: usize,
    pub cols: usize,
    /// Columns before a transform's padding.
    pub source_cols: usize,
    /// `rows` packed rows without padding between them (BF16: little-endian 16-bit values).
    pub codes: Vec<u8>,
    /// Scale bytes in `options.scale_layout`, linear rows without padding between them.
    pub scales: Vec<u8>,
    /// One f32 a scale domain; empty for MXFP4, BF16 and chain SINGLE.
    pub amax: Vec<f32>,
    /// As resolved: `chain` and `c` are what was used.
    pub options: Options,
    /// Signs of the transform as applied; 0 without one.
    pub signs: [u32; 4],
    /// This is the columnwise copy.
    pub transposed: bool,
}

impl Quantized {
    /// Code of an element (E2M1 formats).
    pub fn code(&self, row: usize, col: usize) -> u8 {
        let width = layout::code_row_bytes(self.options.format, self.cols);
        e2m1::get(&self.codes[row * width..], col)
    }

    /// bfloat16 bits of an element (BF16).
    pub fn bf16_bits(&self, row: usize, col: usize) -> u16 {
        let i = 2 * (row * self.cols + col);
        u16::from_le_bytes([self.codes[i], self.codes[i + 1]])
    }

    /// Scale byte of block `block` of a row.
    pub fn scale_byte(&self, row: usize, block: usize) -> u8 {
        let blocks = layout::scale_cols(self.options.format, self.cols);
        self.scales[layout::scale_offset(self.options.scale_layout, row, block, blocks)]
    }

    /// Amax of the row's scale domain; 1 where the format has none.
    pub fn row_amax(&self, row: usize) -> f32 {
        match (self.amax.is_empty(), self.options.domain_rows) {
            (true, _) => 1.0,
            (_, 0) => self.amax[0],
            (_, g) => self.amax[row / g],
        }
    }

    /// How the row decodes.
    pub fn decode_scale(&self, row: usize) -> DecodeScale {
        DecodeScale::new(&self.options, self.row_amax(row))
    }

    /// Decoded element in f32.
    pub fn value(&self, row: usize, col: usize) -> f32 {
        if self.options.format == Format::Bf16 {
            return bf16_value(self.bf16_bits(row, col));
        }
        let d = self.decode_scale(row);
        let factor = decode_factor(&d, self.scale_byte(row, col / self.options.format.block()));
        decode_value(&d, self.code(row, col), factor)
    }
}

/// Does a quantized tensor of these options carry an amax?
pub fn has_amax(o: &Options) -> bool {
    o.format == Format::Nvfp4 && o.chain != Chain::Single
}

/// Scale domains of a copy with this many rows.
pub fn amax_count(o: &Options, rows: usize) -> usize {
    match (has_amax(o), o.domain_rows) {
        (false, _) => 0,
        (true, 0) => 1,
        (true, g) => rows.div_ceil(g),
    }
}
