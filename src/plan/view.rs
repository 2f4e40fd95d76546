//! Matrices in the caller's memory, checked: sizes do not overflow, strides cover the columns, pointers are there and
//! aligned to their elements, buffers are large enough.

use crate::numerics::layout::{code_row_bytes, scale_bytes, scale_cols};
use crate::numerics::scale::DecodeScale;
use crate::numerics::{layout, Block, Chain, Dtype, Format, ScaleLayout, ScaleRule};
use crate::{Error, Result};

/// Rows, columns and strides above this are refused, so that sums and roundings up cannot overflow.
const LARGEST: i64 = 1 << 56;

/// No process has more bytes than this (57-bit addresses, half of them the kernel's).
const ADDRESS_SPACE: usize = 1 << 56;

/// The name of a descriptor's field, put together only where an error needs it.
#[derive(Clone, Copy)]
pub struct Field<'a>(pub &'a str, pub &'a str);

impl std::fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// A count that C gave as a signed number.
pub fn dimension(name: &str, field: &str, value: i64) -> Result<usize> {
    if !(0..=LARGEST).contains(&value) {
        return Err(Error::Shape(format!(
            "{name}.{field} is {value}, want 0 to 2^56"
        )));
    }
    Ok(value as usize)
}

/// Bytes of `rows` rows that start `stride` bytes apart and end `row_bytes` later; an error if that is no size.
pub fn span_bytes(name: &str, rows: usize, stride: usize, row_bytes: usize) -> Result<usize> {
    if rows == 0 || row_bytes == 0 {
        return Ok(0);
    }
    (rows - 1)
        .checked_mul(stride)
        .and_then(|n| n.checked_add(row_bytes))
        .filter(|n| *n <= ADDRESS_SPACE)
        .ok_or_else(|| {
            Error::Shape(format!(
                "{name} with {rows} rows, {stride} bytes apart, is larger than the address space"
            ))
        })
}

fn present(p: *const u8, name: &'static str, bytes: usize, align: usize) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    if p.is_null() {
        return Err(Error::NullPointer(name));
    }
    aligned(p, name, align)
}

/// Checks the alignment of a pointer to elements of `align` bytes.
pub fn aligned(p: *const u8, name: impl std::fmt::Display, align: usize) -> Result<()> {
    if !(p as usize).is_multiple_of(align) {
        return Err(Error::Alignment(format!(
            "{name} is at {p:p}, which is not a multiple of its element's {align} bytes"
        )));
    }
    Ok(())
}

/// An unquantized matrix, row-major, in the caller's memory (of the context's device).
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    pub data: *mut u8,
    pub dtype: Dtype,
    pub rows: usize,
    pub cols: usize,
    /// Elements from one row to the next.
    pub stride: usize,
}

// SAFETY: a view of the caller's memory; who reads and writes it when is the caller's promise (ffi's law).
unsafe impl Send for Matrix {}
// SAFETY: as above.
unsafe impl Sync for Matrix {}

impl Matrix {
    /// Checks everything; `stride` 0 means `cols`. `name` is the argument's ("x"), for messages.
    pub fn new(
        name: &'static str,
        data: *mut u8,
        dtype: Dtype,
        rows: i64,
        cols: i64,
        stride: i64,
    ) -> Result<Matrix> {
        let (rows, cols) = (
            dimension(name, "rows", rows)?,
            dimension(name, "cols", cols)?,
        );
        let stride = match dimension(name, "stride", stride)? {
            0 => cols,
            stride => stride,
        };
        if stride < cols {
            return Err(Error::Shape(format!(
                "{name}.stride is {stride}, less than its {cols} columns"
            )));
        }
        let bytes = span_bytes(name, rows, stride * dtype.size(), cols * dtype.size())?;
        present(data, name, bytes, dtype.size())?;
        Ok(Matrix {
            data,
            dtype,
            rows,
            cols,
            stride,
        })
    }

    /// Only the shape, for sizes and capability queries: no pointer to check.
    pub fn shape_only(name: &'static str, dtype: Dtype, rows: i64, cols: i64) -> Result<Matrix> {
        // Any aligned address will do, nobody reads it.
        Matrix::new(
            name,
            std::ptr::without_provenance_mut(64),
            dtype,
            rows,
            cols,
            0,
        )
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0 || self.cols == 0
    }

    /// Address of element (row, col).
    ///
    /// # Safety
    /// The element is inside the matrix, whose memory is there.
    pub unsafe fn at(&self, row: usize, col: usize) -> *mut u8 {
        // SAFETY: the caller's promise; `new` made sure that the offset does not overflow.
        unsafe { self.data.add((row * self.stride + col) * self.dtype.size()) }
    }

    pub fn shape(&self) -> String {
        format!("[{}, {}]", self.rows, self.cols)
    }
}

/// Buffers that a quantized matrix is to be written to, and the caller's strides (0: packed).
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    pub codes: *mut u8,
    pub codes_bytes: usize,
    pub scales: *mut u8,
    pub scales_bytes: usize,
    pub amax: *mut f32,
    pub amax_count: usize,
    pub code_stride: i64,
    pub scale_stride: i64,
}

impl Buffers {
    /// Buffers that any size fits into, for sizes and capability queries.
    pub fn shape_only() -> Buffers {
        Buffers {
            codes: std::ptr::without_provenance_mut(64),
            codes_bytes: usize::MAX,
            scales: std::ptr::without_provenance_mut(64),
            scales_bytes: usize::MAX,
            amax: std::ptr::without_provenance_mut(64),
            amax_count: usize::MAX,
            code_stride: 0,
            scale_stride: 0,
        }
    }
}

/// A quantized matrix in the caller's memory.
#[derive(Clone, Copy, Debug)]
pub struct Quantized {
    pub codes: *mut u8,
    pub scales: *mut u8,
    /// One f32 a scale domain; may be NULL where `domains()` is 0.
    pub amax: *mut f32,
    pub rows: usize,
    pub cols: usize,
    /// Bytes from row to row.
    pub code_stride: usize,
    /// Bytes from row to row in the linear layout.
    pub scale_stride: usize,
    pub format: Format,
    pub block: Block,
    pub chain: Chain,
    pub scale_rule: ScaleRule,
    pub scale_layout: ScaleLayout,
    pub range_16_17: bool,
    /// Transform that the data went through: its length (0: none) and its signs.
    pub hadamard: u32,
    pub sign_words: [u32; 4],
    pub transposed: bool,
    /// Rows that share one amax; 0 = all.
    pub domain_rows: usize,
    /// C as recorded, never 0.
    pub c: f32,
    /// Columns before a transform's padding.
    pub source_cols: usize,
    /// 0: one matrix. Else the copies of that many groups, with one amax each (`plan::grouped`).
    pub groups: usize,
    /// Bytes of codes and of scales and values of amax that the buffers hold beyond this matrix: the rest of a batch.
    pub beyond: [usize; 3],
}

// SAFETY: as for Matrix.
unsafe impl Send for Quantized {}
// SAFETY: as for Matrix.
unsafe impl Sync for Quantized {}

impl Quantized {
    /// Fills in strides and pointers from `buffers` and checks that they hold what the other fields describe.
    pub fn bind(mut self, name: &'static str, buffers: &Buffers) -> Result<Quantized> {
        let field = |suffix| Field(name, suffix);
        let row_bytes = self.code_row_bytes();
        self.code_stride = match dimension(name, "code_stride", buffers.code_stride)? {
            0 => row_bytes,
            stride if stride < row_bytes => {
                return Err(Error::Shape(format!(
                    "{name}.code_stride is {stride}, a row of {} columns has {row_bytes} bytes",
                    self.cols
                )))
            }
            stride => stride,
        };
        let scale_cols = self.scale_cols();
        self.scale_stride = match dimension(name, "scale_stride", buffers.scale_stride)? {
            0 => scale_cols,
            stride if stride < scale_cols && self.scale_layout == ScaleLayout::Linear => {
                return Err(Error::Shape(format!(
                    "{name}.scale_stride is {stride}, a row of {} columns has {scale_cols} scale bytes",
                    self.cols
                )))
            }
            stride => stride,
        };
        let codes_bytes = span_bytes(name, self.rows, self.code_stride, row_bytes)?;
        let scales_bytes = match self.scale_layout {
            ScaleLayout::Linear => span_bytes(name, self.rows, self.scale_stride, scale_cols)?,
            // Rounding up to tiles cannot overflow: span_bytes has just accepted a larger number of codes.
            ScaleLayout::Swizzled => scale_bytes(ScaleLayout::Swizzled, self.rows, scale_cols),
        };
        let room = |what: &'static str, have: usize, need: usize, unit: &str| {
            if have < need {
                return Err(Error::BufferSize(format!(
                    "{} is {have}, {} {} [{}, {}] needs {need} {unit}",
                    field(what),
                    describe(self.format),
                    if self.scale_layout == ScaleLayout::Swizzled && what == "scales_bytes" {
                        "with swizzled scales"
                    } else {
                        "matrix"
                    },
                    self.rows,
                    self.cols
                )));
            }
            Ok(())
        };
        room("codes_bytes", buffers.codes_bytes, codes_bytes, "bytes")?;
        room("scales_bytes", buffers.scales_bytes, scales_bytes, "bytes")?;
        let code_align = if self.format == Format::Bf16 { 2 } else { 1 };
        present(buffers.codes, "codes", codes_bytes, code_align)?;
        if codes_bytes > 0 && !self.code_stride.is_multiple_of(code_align) {
            return Err(Error::Alignment(format!(
                "{name}.code_stride is {}, not a multiple of bfloat16's 2 bytes",
                self.code_stride
            )));
        }
        present(buffers.scales, "scales", scales_bytes, 1)?;
        if self.domains() > 0 {
            if buffers.amax.is_null() {
                return Err(Error::NullPointer("amax"));
            }
            aligned(buffers.amax.cast(), field("amax"), 4)?;
            room("amax_count", buffers.amax_count, self.domains(), "values")?;
        }
        self.codes = buffers.codes;
        self.scales = buffers.scales;
        self.amax = buffers.amax;
        self.beyond = [
            buffers.codes_bytes - codes_bytes,
            buffers.scales_bytes - scales_bytes,
            buffers.amax_count.saturating_sub(self.domains()),
        ];
        Ok(self)
    }

    /// Bytes of one row of codes without padding.
    pub fn code_row_bytes(&self) -> usize {
        code_row_bytes(self.format, self.cols)
    }

    /// Blocks of one row.
    pub fn scale_cols(&self) -> usize {
        scale_cols(self.format, self.cols)
    }

    /// Does the format, with its chain, have an amax?
    pub fn has_amax(&self) -> bool {
        self.format == Format::Nvfp4 && self.chain != Chain::Single
    }

    /// Values of amax: 0 where there is none.
    pub fn domains(&self) -> usize {
        if !self.has_amax() {
            0
        } else if self.groups != 0 {
            self.groups
        } else if self.domain_rows == 0 {
            1
        } else {
            self.rows.div_ceil(self.domain_rows)
        }
    }

    /// Scale domain of a row.
    pub fn domain_of(&self, row: usize) -> usize {
        row.checked_div(self.domain_rows).unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0 || self.cols == 0
    }

    /// How the elements of a domain with this amax decode.
    pub fn decode_scale(&self, amax: f32) -> DecodeScale {
        DecodeScale {
            format: self.format,
            chain: self.chain,
            scale_rule: self.scale_rule,
            range_16_17: self.range_16_17,
            c: self.c,
            amax,
        }
    }

    /// Offset of the scale byte of (row, block).
    pub fn scale_offset(&self, row: usize, block: usize) -> usize {
        match self.scale_layout {
            ScaleLayout::Linear => row * self.scale_stride + block,
            ScaleLayout::Swizzled => layout::swizzled_offset(row, block, self.scale_cols()),
        }
    }

    pub fn shape(&self) -> String {
        format!("[{}, {}]", self.rows, self.cols)
    }
}

/// The format's name in messages.
pub fn describe(format: Format) -> &'static str {
    match format {
        Format::Nvfp4 => "an NVFP4",
        Format::Mxfp4 => "an MXFP4",
        Format::Bf16 => "a BF16",
    }
}
