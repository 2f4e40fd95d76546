//! Checks and times the AMX kernels (src/cpu/amx) beside the AVX-512 one. Needs no crate: `rustc -O examples/amx.rs`.
//! Exit status 0 where all checks pass or AMX is missing (which one line says).

#[cfg(target_arch = "x86_64")]
#[allow(dead_code)]
#[path = "../src/cpu/amx/mod.rs"]
mod amx;
#[cfg(target_arch = "x86_64")]
#[allow(dead_code)]
#[path = "../src/cpu/avx512/gemm/kernel.rs"]
mod avx512;
#[cfg(target_arch = "x86_64")]
#[path = "amx/check.rs"]
mod check;

fn main() {
    #[cfg(target_arch = "x86_64")]
    check::main();
    #[cfg(not(target_arch = "x86_64"))]
    println!("amx: not run, this is not an x86-64 processor");
}
