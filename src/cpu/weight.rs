//! Weights packed once for many products: a header, then B as the kernels in use read it.
//!
//! Two forms of the bytes after the header. `plain`: codes row after row, then scale bytes row after row; every table of
//! kernels reads it as it reads any operand. Otherwise panels of 32 rows of B in an order that one table names
//! (`WeightPacker`), and other tables refuse.

use super::operand::{mx_is_safe, Operand};
use super::{Cpu, Kernels};
use crate::numerics::{Format, ScaleLayout};
use crate::plan::view::describe;
use crate::plan::{GemmPlan, Quantized};
use crate::{Error, Result};

/// How a table of kernels packs a weight.
#[derive(Clone, Copy)]
pub struct WeightPacker {
    /// Names the order of the bytes; tables that read each other's weights share it. ASCII, filled up with zeros.
    pub layout: [u8; 8],
    /// Bytes of one panel.
    pub panel_bytes: fn(&Operand) -> usize,
    /// Writes a panel.
    ///
    /// # Safety
    /// The operand must describe readable memory, the pointer be writable for `panel_bytes`.
    pub pack_panel: unsafe fn(&Operand, usize, *mut u8),
}

/// Rows of B in a panel.
pub const PANEL: usize = 32;
const PLAIN: [u8; 8] = *b"plain\0\0\0";
const HEADER: usize = 64;
/// Changes with the order of the bytes of any layout.
const MAGIC: u64 = u64::from_le_bytes(*b"nvfp4w02");

/// What the bytes begin with.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Header {
    layout: [u8; 8],
    format: Format,
    rows: u64,
    cols: u64,
    /// No scale leaves the range in which an FMA rounds as the contract does (`mx_is_safe`).
    safe: bool,
    /// `sample` of the matrix.
    sample: u64,
}

impl Header {
    fn words(&self) -> [u64; HEADER / 8] {
        let mut words = [
            MAGIC,
            u64::from_le_bytes(self.layout),
            self.format as u64,
            self.rows,
            self.cols,
            self.safe as u64,
            self.sample,
            0,
        ];
        words[7] = words[..7].iter().fold(MAGIC, |h, w| mix(h, *w));
        words
    }

    /// None: not a header, or not as it was written.
    ///
    /// # Safety
    /// `p` must be readable for `HEADER` bytes.
    unsafe fn read(p: *const u8) -> Option<Header> {
        let mut words = [0u64; HEADER / 8];
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(p, words.as_mut_ptr().cast(), HEADER) };
        let [_, layout, format, rows, cols, safe, sample, _] = words;
        let header = Header {
            layout: layout.to_le_bytes(),
            format: [Format::Nvfp4, Format::Mxfp4, Format::Bf16]
                .into_iter()
                .find(|f| *f as u64 == format)?,
            rows,
            cols,
            safe: safe == 1,
            sample,
        };
        (header.words() == words).then_some(header)
    }

    /// # Safety
    /// `p` must be writable for `HEADER` bytes.
    unsafe fn write(&self, p: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(self.words().as_ptr().cast(), p, HEADER) };
    }

    fn layout(&self) -> &str {
        let name = std::str::from_utf8(&self.layout).unwrap_or("unknown");
        name.trim_end_matches('\0')
    }
}

fn mix(hash: u64, word: u64) -> u64 {
    let x = (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x ^ (x >> 29)
}

/// A hash of up to 48 stretches of codes and of scales, spread over the matrix: tells one weight from another (or from
/// itself after another step of training) without reading it all.
///
/// # Safety
/// `b` must describe readable memory.
unsafe fn sample(b: &Quantized) -> u64 {
    const STRETCHES: u64 = 48;
    let (row_bytes, scale_cols) = (b.code_row_bytes(), b.scale_cols());
    let mut hash = 0;
    if b.rows == 0 || row_bytes == 0 {
        return hash;
    }
    // Multiples of irrational numbers fall everywhere, each dimension by its own.
    let spread = |i: u64, step: u64, n: usize| {
        ((i.wrapping_mul(step) as u32 as u64 * n as u64) >> 32) as usize
    };
    for i in 0..STRETCHES {
        let row = spread(i, 0x9E37_79B9, b.rows);
        let from = spread(i, 0xC13F_A9A9, row_bytes) / 32 * 32;
        let mut codes = [0u8; 32];
        let n = (row_bytes - from).min(32);
        // SAFETY: bytes of a row inside the matrix.
        unsafe {
            let p = b.codes.add(row * b.code_stride + from);
            std::ptr::copy_nonoverlapping(p, codes.as_mut_ptr(), n);
        }
        for word in codes.chunks_exact(8) {
            hash = mix(
                hash,
                u64::from_le_bytes(word.try_into().expect("eight bytes")),
            );
        }
        if scale_cols > 0 && b.format != Format::Bf16 {
            let mut scales = [0u8; 8];
            let from = spread(i, 0x91E1_0DA5, scale_cols) / 8 * 8;
            // SAFETY: a row inside the matrix.
            unsafe { Operand::of(b).read_scales(row, from, &mut scales) };
            hash = mix(hash, u64::from_le_bytes(scales));
        }
    }
    hash
}

/// The table's own packer, for the formats that it knows; None: the plain form.
fn packer(kernels: &Kernels, format: Format) -> Option<&WeightPacker> {
    kernels.weights.as_ref().filter(|_| format != Format::Bf16)
}

/// Bytes of codes, and of scales, of the plain form.
fn plain_bytes(b: &Quantized) -> (usize, usize) {
    let scales = match b.format {
        Format::Bf16 => 0,
        _ => b.rows * b.scale_cols(),
    };
    (b.rows * b.code_row_bytes(), scales)
}

/// Bytes of B's packed form.
pub fn bytes(kernels: &Kernels, b: &Quantized) -> usize {
    HEADER
        + match packer(kernels, b.format) {
            Some(packer) => b.rows.div_ceil(PANEL) * (packer.panel_bytes)(&Operand::of(b)),
            None => plain_bytes(b).0 + plain_bytes(b).1,
        }
}

/// Packs B. `packed` may be at any address.
pub fn pack(cpu: &Cpu, b: &Quantized, packed: *mut u8, packed_bytes: usize) -> Result<()> {
    let need = bytes(&cpu.kernels, b);
    if packed.is_null() {
        return Err(Error::NullPointer("packed"));
    }
    if packed_bytes < need {
        return Err(Error::BufferSize(format!(
            "packed_bytes is {packed_bytes}, b, {} matrix {}, needs {need}",
            describe(b.format),
            b.shape()
        )));
    }
    let own = packer(&cpu.kernels, b.format);
    // SAFETY: the plan checked B; the caller vouches for `packed_bytes` at `packed`.
    unsafe {
        let header = Header {
            layout: own.map_or(PLAIN, |p| p.layout),
            format: b.format,
            rows: b.rows as u64,
            cols: b.cols as u64,
            safe: b.format != Format::Mxfp4 || mx_is_safe(&Operand::of(b)),
            sample: sample(b),
        };
        header.write(packed);
    }
    let out = Out(packed);
    let Some(packer) = own else {
        let (codes, _) = plain_bytes(b);
        let (row_bytes, scale_cols) = (b.code_row_bytes(), b.scale_cols());
        cpu.pool.run(b.rows, |row| {
            // SAFETY: the row's codes and scales, and their places in the packed bytes, this job's alone.
            unsafe {
                let from = b.codes.wrapping_add(row * b.code_stride);
                std::ptr::copy_nonoverlapping(from, out.at(HEADER + row * row_bytes), row_bytes);
                if b.format != Format::Bf16 {
                    let to = out.at(HEADER + codes + row * scale_cols);
                    to.write_bytes(0, scale_cols);
                    let to = std::slice::from_raw_parts_mut(to, scale_cols);
                    Operand::of(b).read_scales(row, 0, to);
                }
            }
        });
        return Ok(());
    };
    let operand = Operand::of(b);
    let panel_bytes = (packer.panel_bytes)(&operand);
    cpu.pool.run(b.rows.div_ceil(PANEL), |i| {
        // SAFETY: panel i lies inside the packed bytes, and is this job's alone.
        unsafe { (packer.pack_panel)(&operand, i, out.at(HEADER + i * panel_bytes)) };
    });
    Ok(())
}

/// The caller's memory, written by one job a panel or row.
struct Out(*mut u8);

// SAFETY: jobs write disjoint pieces.
unsafe impl Sync for Out {}

impl Out {
    fn at(&self, offset: usize) -> *mut u8 {
        self.0.wrapping_add(offset)
    }
}

/// A packed weight that was found to be a plan's B.
#[derive(Clone, Copy)]
pub struct Packed {
    data: *const u8,
    plain: bool,
    pub safe: bool,
}

// SAFETY: only read through, and the caller keeps the memory unchanged during the call.
unsafe impl Sync for Packed {}

impl Packed {
    /// Panels in the order of the table's packer; None: plain.
    pub fn panels(&self) -> Option<*const u8> {
        (!self.plain).then(|| self.data.wrapping_add(HEADER))
    }

    /// The matrix to read: the plain form, or B itself.
    pub fn matrix(&self, b: &Quantized) -> Quantized {
        if !self.plain {
            return *b;
        }
        let codes = self.data.cast_mut().wrapping_add(HEADER);
        Quantized {
            codes,
            code_stride: b.code_row_bytes(),
            scales: codes.wrapping_add(plain_bytes(b).0),
            scale_stride: b.scale_cols(),
            scale_layout: ScaleLayout::Linear,
            ..*b
        }
    }
}

/// The plan's packed weight, if it has one and it is one of its B that these kernels can read.
pub fn of(kernels: &Kernels, plan: &GemmPlan) -> Result<Option<Packed>> {
    let (data, b) = (plan.b_packed, &plan.b);
    if data.is_null() {
        return Ok(None);
    }
    let given = plan.b_packed_bytes;
    if given < HEADER {
        return Err(Error::BufferSize(format!(
            "desc.b_packed_bytes is {given}, a packed weight has at least {HEADER}"
        )));
    }
    // SAFETY: the caller vouches for b_packed_bytes at b_packed.
    let header = unsafe { Header::read(data) }.ok_or_else(|| {
        Error::Mismatch(
            "desc.b_packed does not begin as a weight that this version of the library packed"
                .into(),
        )
    })?;
    if (header.format, header.rows, header.cols) != (b.format, b.rows as u64, b.cols as u64) {
        return Err(Error::Mismatch(format!(
            "desc.b_packed holds {} matrix [{}, {}], b is {} one {}",
            describe(header.format),
            header.rows,
            header.cols,
            describe(b.format),
            b.shape()
        )));
    }
    let plain = header.layout == PLAIN;
    let own = packer(kernels, b.format);
    if !plain && own.is_none_or(|p| p.layout != header.layout) {
        return Err(Error::Mismatch(format!(
            "desc.b_packed was packed for the kernels \"{}\", this context runs \"{}\": pack b on this context",
            header.layout(),
            kernels.name
        )));
    }
    let need = HEADER
        + match own.filter(|_| !plain) {
            Some(packer) => b.rows.div_ceil(PANEL) * (packer.panel_bytes)(&Operand::of(b)),
            None => plain_bytes(b).0 + plain_bytes(b).1,
        };
    if given < need {
        return Err(Error::BufferSize(format!(
            "desc.b_packed_bytes is {given}, b {} packed has {need}",
            b.shape()
        )));
    }
    // SAFETY: the plan checked B.
    if header.sample != unsafe { sample(b) } {
        return Err(Error::Mismatch(format!(
            "desc.b_packed was packed from another matrix than b {}, or b has changed since: pack b again",
            b.shape()
        )));
    }
    Ok(Some(Packed {
        data,
        plain,
        safe: header.safe,
    }))
}
