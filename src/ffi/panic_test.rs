//! The panic wall, from C, in a release build: feature `panic-test` only, in no header and in no package.

use super::boundary;
use crate::abi::*;

/// Panics inside the wall.
#[unsafe(no_mangle)]
pub extern "C" fn nvfp4_test_panic(index: u32) -> nvfp4_status {
    boundary(|| {
        let five = [0u32; 5];
        let index = std::hint::black_box(index as usize);
        std::hint::black_box(five[index]);
        Ok(())
    })
}
