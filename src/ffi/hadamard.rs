//! The random Hadamard transform by itself.

use std::ffi::c_void;

use super::{boundary, context, convert, nvfp4_context};
use crate::abi::*;

/// y = (x .* sign) H / sqrt(n) on blocks of n along `axis`, computed in f32 and cast once to y's type; with inverse = 1
/// y = (x H / sqrt(n)) .* sign. The length along `axis` is n-padded: forward, y has it rounded up to a multiple of n
/// (x counts as followed by zeros); inverse, x has it, and y any length that rounds up to it. y may be x itself (same
/// data, type, shape and stride). `desc` may be NULL: n = 16, along rows, default signs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_hadamard(
    ctx: *mut nvfp4_context,
    desc: *const nvfp4_hadamard_desc,
    x: *const nvfp4_matrix,
    y: *const nvfp4_matrix,
    stream: *mut c_void,
) -> nvfp4_status {
    // SAFETY: this module's law.
    boundary(|| unsafe {
        let request = convert::hadamard_request(desc)?;
        let (x, y) = (convert::matrix("x", x)?, convert::matrix("y", y)?);
        context(ctx)?.hadamard(&request, x, y, stream)
    })
}
