//! AVX2's kernels with the products' inner kernel by AVX-VNNI (Alder Lake, Sierra Forest, Zen 5: 256-bit dot products
//! of bytes without AVX-512).

use super::avx2;
use super::Kernels;

/// Whether this processor has all that the kernels here use.
pub fn available() -> bool {
    avx2::available() && is_x86_feature_detected!("avxvnni")
}

/// The table; None where the processor cannot run it.
pub fn table() -> Option<Kernels> {
    let avx2 = available().then(avx2::table::table).flatten()?;
    Some(Kernels {
        name: "avxvnni",
        gemm_tile: avx2::table::gemm_tile::<true>,
        ..avx2
    })
}
