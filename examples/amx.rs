//! Checks and times AMX products beside AVX-512's: the tile kernels by themselves, then whole products of both tables.
//! Takes under half a minute: `cargo run --release --example amx`. Exit status 0 where all checks pass or AMX is missing
//! (which one line says).

#[cfg(target_arch = "x86_64")]
#[path = "amx/check.rs"]
mod check;
#[allow(dead_code)]
#[path = "../benches/cpu/data.rs"]
mod data;
#[cfg(target_arch = "x86_64")]
#[path = "amx/products.rs"]
mod products;

fn main() {
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(why) = nvfp4::cpu::amx::missing() {
            println!("amx: not run, {why}");
            return;
        }
        let mut right = check::kernels();
        right &= products::check();
        check::times();
        products::times();
        println!(
            "amx: {}",
            if right { "all checks passed" } else { "FAILED" }
        );
        std::process::exit(!right as i32);
    }
    #[cfg(not(target_arch = "x86_64"))]
    println!("amx: not run, this is not an x86-64 processor");
}
