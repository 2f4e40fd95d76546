//! Gives the shared library its SONAME, which carries the version of the ABI, and compiles the CUDA kernels (feature
//! `cuda`): kernels/build.rs.
use std::env;

#[path = "kernels/build.rs"]
mod kernels;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    soname();
    if env::var_os("CARGO_FEATURE_CUDA").is_some() {
        kernels::build();
    }
}

/// Before 1.0 the minor version is the ABI's, then the major one.
fn soname() {
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    let part = |name: &str| env::var(name).expect("cargo sets the package version");
    let major = part("CARGO_PKG_VERSION_MAJOR");
    let abi = match major.as_str() {
        "0" => format!("0.{}", part("CARGO_PKG_VERSION_MINOR")),
        _ => major,
    };
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnvfp4.so.{abi}");
}
