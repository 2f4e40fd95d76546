//! The CPU backend: `run(plan)` for each operation, tiles spread over threads. Results are the same bytes at every
//! thread count, because a tile's result depends on nothing outside it (but the amax of its domains, a maximum).
//!
//! How an instruction set joins: each operation splits its work into tiles, and a tile's work is one function of
//! `Kernels`. The scalar table (`SCALAR`) is always complete. A faster table is a sibling (cpu/avx512/, ...) that starts
//! from `..SCALAR` and replaces entries; an entry that does not handle some options calls the scalar one for them. Every
//! entry must equal the scalar one, byte for byte. `Kernels::detect` chooses at run time, once a context.
//!
//! Tiles: `rows` and `cols` are ranges of the source (quantize, hadamard), of x (dequantize) or of D (gemm). Both start
//! at multiples of 128, or, where only whole rows matter (a rowwise copy, dequantize), `rows` starts at a multiple of
//! 32. Tiles of one call never share an output byte, except amax, which is a maximum by atomic operations.

#[cfg(target_arch = "x86_64")]
pub mod amx;
#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
#[cfg(target_arch = "x86_64")]
pub mod avxvnni;
mod columns;
mod decode;
mod dequantize;
mod encode;
mod factors;
mod gemm;
mod gemm_elements;
mod grouped_gemm;
mod grouped_quantize;
mod groups;
mod hadamard;
mod known;
#[cfg(target_arch = "aarch64")]
pub mod neon;
mod operand;
mod packing;
mod panel;
pub mod pool;
mod quantize;
mod rows;
mod rule;
mod scales;
mod stats;
mod transpose;
mod vector;
mod walk;
mod weight;

#[cfg(test)]
mod gemm_tests;
#[cfg(test)]
mod isa_tests;
#[cfg(test)]
mod table_product_tests;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod weight_tests;

use std::ops::Range;

use crate::plan::{
    DequantizePlan, GemmPlan, GroupedGemmPlan, GroupedQuantizePlan, HadamardPlan, QuantizePlan,
    Quantized, ScalesPlan, TransposePlan,
};
use crate::Result;
use pool::Pool;

pub use gemm::{GemmScratch, Product};
pub use weight::WeightPacker;

/// Part of a matrix.
#[derive(Clone, Debug)]
pub struct Tile {
    pub rows: Range<usize>,
    pub cols: Range<usize>,
}

/// What an instruction set does. Each function's contract is that of the scalar one of that name.
#[derive(Clone, Copy)]
pub struct Kernels {
    pub name: &'static str,
    /// Raises `out.amax` of each copy without a given amax to the maximum over the tile (`quantize::raise`).
    pub amax_tile: fn(&QuantizePlan, &Tile),
    /// Writes the codes and scale bytes of each copy that stand for the tile; returns how many scaled magnitudes
    /// exceeded 6 (counted in the copy that statistics are of), or 0 if no statistics are wanted.
    pub quantize_tile: fn(&QuantizePlan, &Tile) -> u64,
    pub dequantize_tile: fn(&DequantizePlan, &Tile),
    pub hadamard_tile: fn(&HadamardPlan, &Tile),
    /// Writes the accumulators (mode BLOCK) of D's tile to `scratch.acc`, rows `gemm::TILE_COLS` apart.
    pub gemm_tile: fn(&Product, &Tile, &mut GemmScratch),
    /// How weights are packed for `gemm_tile`; None: in the plain form.
    pub weights: Option<WeightPacker>,
}

/// Plain Rust.
pub const SCALAR: Kernels = Kernels {
    name: "scalar",
    amax_tile: quantize::amax_tile,
    quantize_tile: quantize::quantize_tile,
    dequantize_tile: dequantize::dequantize_tile,
    hadamard_tile: hadamard::hadamard_tile,
    gemm_tile: gemm::gemm_tile,
    weights: None,
};

/// None where the processor cannot run it.
type Table = fn() -> Option<Kernels>;

/// All tables, the fastest first.
const TABLES: &[(&str, Table)] = &[
    #[cfg(target_arch = "x86_64")]
    ("amx", amx::table::table),
    #[cfg(target_arch = "x86_64")]
    ("avx512", avx512::table::table),
    #[cfg(target_arch = "x86_64")]
    ("avxvnni", avxvnni::table),
    #[cfg(target_arch = "x86_64")]
    ("avx2", avx2::table::table),
    #[cfg(target_arch = "aarch64")]
    ("neon", neon::table::table),
    ("scalar", || Some(SCALAR)),
];

impl Kernels {
    /// The fastest table that this processor can run, or the one that NVFP4_CPU_ISA names (for measurements: no table
    /// changes a byte of a result but mode FAST's, which promises a bound).
    pub fn detect() -> Kernels {
        if let Some(kernels) = std::env::var("NVFP4_CPU_ISA")
            .ok()
            .and_then(|n| Kernels::by_name(&n))
        {
            return kernels;
        }
        Kernels::all().next().unwrap_or(SCALAR)
    }

    /// Every table that this processor can run, the fastest first.
    pub fn all() -> impl Iterator<Item = Kernels> {
        TABLES.iter().filter_map(|(_, table)| table())
    }

    /// The table of that name, if this processor can run it. Asks for no other, so that the kernel is not asked for
    /// tile registers in vain.
    pub fn by_name(name: &str) -> Option<Kernels> {
        let (_, table) = TABLES.iter().find(|(n, _)| *n == name)?;
        table()
    }
}

/// The CPU as a context sees it.
pub struct Cpu {
    pub(crate) pool: Pool,
    pub(crate) kernels: Kernels,
    /// Packing buffers of threads that have worked on a product, kept for the next one.
    pub(crate) scratch: gemm::ScratchList,
}

impl Cpu {
    /// `threads` of one call, caller included; 0 = as many as the process may use.
    pub fn new(threads: usize) -> Cpu {
        Cpu {
            pool: Pool::new(threads),
            kernels: Kernels::detect(),
            scratch: gemm::ScratchList::default(),
        }
    }

    /// With a table of the caller's choice, for tests and measurements.
    pub fn with_kernels(threads: usize, kernels: Kernels) -> Cpu {
        Cpu {
            kernels,
            ..Cpu::new(threads)
        }
    }

    /// The instruction set in use.
    pub fn isa(&self) -> &'static str {
        self.kernels.name
    }

    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Fills `out.amax` of each copy; nothing else of `out` is touched.
    pub fn amax(&self, plan: &QuantizePlan) -> Result<()> {
        quantize::amax(self, plan);
        Ok(())
    }

    pub fn quantize(&self, plan: &QuantizePlan) -> Result<()> {
        quantize::run(self, plan);
        Ok(())
    }

    pub fn dequantize(&self, plan: &DequantizePlan) -> Result<()> {
        dequantize::run(self, plan);
        Ok(())
    }

    pub fn transpose(&self, plan: &TransposePlan) -> Result<()> {
        transpose::run(self, plan);
        Ok(())
    }

    pub fn hadamard(&self, plan: &HadamardPlan) -> Result<()> {
        hadamard::run(self, plan);
        Ok(())
    }

    pub fn swizzle(&self, plan: &ScalesPlan) -> Result<()> {
        scales::swizzle(self, plan);
        Ok(())
    }

    pub fn unswizzle(&self, plan: &ScalesPlan) -> Result<()> {
        scales::unswizzle(self, plan);
        Ok(())
    }

    /// Whether this backend does what the plan asks; every other plan it does.
    pub fn supports_gemm(&self, plan: &GemmPlan) -> Result<()> {
        gemm::supports(plan)
    }

    /// Bytes of B's packed form.
    pub fn weight_bytes(&self, b: &Quantized) -> usize {
        weight::bytes(&self.kernels, b)
    }

    /// Packs B for products on this context.
    pub fn pack_weight(&self, b: &Quantized, packed: *mut u8, packed_bytes: usize) -> Result<()> {
        weight::pack(self, b, packed, packed_bytes)
    }

    pub fn gemm(&self, plan: &GemmPlan) -> Result<()> {
        gemm::run(self, plan)
    }

    pub fn grouped_quantize(&self, plan: &GroupedQuantizePlan) -> Result<()> {
        grouped_quantize::run(self, plan);
        Ok(())
    }

    /// As `supports_gemm`.
    pub fn supports_grouped_gemm(&self, plan: &GroupedGemmPlan) -> Result<()> {
        grouped_gemm::supports(plan)
    }

    pub fn grouped_gemm(&self, plan: &GroupedGemmPlan) -> Result<()> {
        grouped_gemm::run(self, plan);
        Ok(())
    }
}
