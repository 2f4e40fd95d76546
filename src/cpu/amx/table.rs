//! AVX-512's table, with the products that tiles do faster.

use super::gemm::{Bf16, Int8};
use super::missing;
use crate::cpu::avx512;
use crate::cpu::gemm::{is_elementwise, GemmScratch, Product, TILE_COLS};
use crate::cpu::operand::Operand;
use crate::cpu::{walk, Kernels, Tile};
use crate::numerics::Accumulate;

/// Rows of D from which tiles of 16 or 32 rows pay.
const ROWS: usize = 16;
/// K from which the tile's order of additions stays inside FAST's bound whatever the data. A step of 32 rounds at most
/// sixteen times at the size of its own products (a block of 16 is exact) and twice at the size of the sum, so an error
/// is at most (10 + K / 32) 2^-24 of the sum of magnitudes, and the bound is K / 16 times 2^-22.
const FAST_FROM: usize = 128;

/// The table; None where the processor or its operating system cannot run it.
pub fn table() -> Option<Kernels> {
    let avx512 = avx512::table::table()?;
    missing().is_none().then_some(Kernels {
        name: "amx",
        gemm_tile,
        ..avx512
    })
}

/// What the tiles would do of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Avx512,
    Int8,
    Bf16,
}

/// The same for every tile of a product, since they share packed rows.
pub fn way(product: &Product) -> Way {
    let plan = product.plan;
    if is_elementwise(&product.a, &product.b) || !product.exact_in_f32 || plan.m < ROWS {
        return Way::Avx512;
    }
    if plan.accumulate == Accumulate::Fast && plan.k >= FAST_FROM {
        return Way::Bf16;
    }
    match product.a.format.block() {
        32 => Way::Int8,
        _ => Way::Avx512,
    }
}

fn gemm_tile(product: &Product, tile: &Tile, scratch: &mut GemmScratch) {
    let way = way(product);
    if way == Way::Avx512 {
        return avx512::table::gemm_tile(product, tile, scratch);
    }
    let acc = scratch.acc.as_mut_ptr();
    let (rows, cols, packing) = (tile.rows.clone(), tile.cols.clone(), &mut scratch.packing);
    let (a, b) = (Operand::of(&product.a), Operand::of(&product.b));
    // SAFETY: the table is only handed out where `missing` is None; the plan checked the operands; acc holds a tile.
    unsafe {
        match (way, a.block) {
            (Way::Int8, _) => walk::tile::<Int8>(&a, &b, rows, cols, packing, acc, TILE_COLS),
            (_, 16) => walk::tile::<Bf16<1>>(&a, &b, rows, cols, packing, acc, TILE_COLS),
            _ => walk::tile::<Bf16<2>>(&a, &b, rows, cols, packing, acc, TILE_COLS),
        }
    }
}
