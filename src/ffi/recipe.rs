//! Named recipes.

use std::ffi::c_char;

use super::boundary;
use crate::abi::*;
use crate::Error;

/// Fills a recipe by name: "nvfp4" (also "te_nvfp4": transform of 16 on both wgrad operands, stochastic rounding of
/// gradients, 16x16 tiles for weights), "nvfp4_no_rht" ("te_nvfp4_no_rht"), "mxfp4", "bf16" (no quantization, for
/// comparison). Set out->struct_size = sizeof(nvfp4_recipe) before. Any field may be changed after.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_recipe_init(
    name: *const c_char,
    out: *mut nvfp4_recipe,
) -> nvfp4_status {
    let _ = (name, out);
    boundary(|| Err(Error::NotSupported("not in this build".into())))
}

/// The options of one operand (NVFP4_OPERAND_*) of a recipe as a quantize descriptor, seed and offset 0. Set
/// out->struct_size = sizeof(nvfp4_quantize_desc) before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_recipe_quantize_desc(
    recipe: *const nvfp4_recipe,
    operand: u32,
    out: *mut nvfp4_quantize_desc,
) -> nvfp4_status {
    let _ = (recipe, operand, out);
    boundary(|| Err(Error::NotSupported("not in this build".into())))
}
