//! Named recipes.

use std::ffi::{c_char, CStr};
use std::mem::{size_of, MaybeUninit};

use super::read::{read, struct_size, write_back};
use super::{boundary, convert};
use crate::abi::*;
use crate::plan::view::Field;
use crate::recipe::{Recipe, Role};
use crate::{Error, Result};

/// SAFETY: this module's law.
pub(super) unsafe fn recipe_from_c(p: *const nvfp4_recipe, name: &'static str) -> Result<Recipe> {
    // SAFETY: the caller's promise.
    let r = unsafe { read(p, name)? };
    let options = |field: &str, o: &nvfp4_options| convert::options(&format!("{name}.{field}"), o);
    Ok(Recipe {
        activation_rowwise: options("activation_rowwise", &r.activation_rowwise)?,
        activation_columnwise: options("activation_columnwise", &r.activation_columnwise)?,
        weight_rowwise: options("weight_rowwise", &r.weight_rowwise)?,
        weight_columnwise: options("weight_columnwise", &r.weight_columnwise)?,
        gradient_rowwise: options("gradient_rowwise", &r.gradient_rowwise)?,
        gradient_columnwise: options("gradient_columnwise", &r.gradient_columnwise)?,
        accumulate: convert::accumulate(Field(name, "accumulate"), r.accumulate)?,
        nonfinite: convert::nonfinite(Field(name, "nonfinite"), r.nonfinite)?,
    })
}

fn recipe_to_c(r: &Recipe) -> nvfp4_recipe {
    nvfp4_recipe {
        struct_size: size_of::<nvfp4_recipe>(),
        activation_rowwise: convert::options_to_c(&r.activation_rowwise),
        activation_columnwise: convert::options_to_c(&r.activation_columnwise),
        weight_rowwise: convert::options_to_c(&r.weight_rowwise),
        weight_columnwise: convert::options_to_c(&r.weight_columnwise),
        gradient_rowwise: convert::options_to_c(&r.gradient_rowwise),
        gradient_columnwise: convert::options_to_c(&r.gradient_columnwise),
        accumulate: r.accumulate as u32,
        nonfinite: r.nonfinite as u32,
    }
}

/// Fills a recipe by name: "nvfp4" (also "te_nvfp4": transform of 16 on both wgrad operands, stochastic rounding of
/// gradients, 16x16 tiles for weights), "nvfp4_no_rht" ("te_nvfp4_no_rht"), "mxfp4", "bf16" (no quantization, for
/// comparison). Set out->struct_size = sizeof(nvfp4_recipe) before. Any field may be changed after.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_recipe_init(
    name: *const c_char,
    out: *mut nvfp4_recipe,
) -> nvfp4_status {
    // SAFETY: this module's law.
    boundary(|| unsafe {
        struct_size(out.cast_const(), "out")?;
        if name.is_null() {
            return Err(Error::NullPointer("name"));
        }
        let recipe = Recipe::named(&CStr::from_ptr(name).to_string_lossy())?;
        write_back(out, &recipe_to_c(&recipe));
        Ok(())
    })
}

/// The options of one operand (NVFP4_OPERAND_*) of a recipe as a quantize descriptor, seed and offset 0. Set
/// out->struct_size = sizeof(nvfp4_quantize_desc) before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_recipe_quantize_desc(
    recipe: *const nvfp4_recipe,
    operand: u32,
    out: *mut nvfp4_quantize_desc,
) -> nvfp4_status {
    // SAFETY: this module's law.
    boundary(|| unsafe {
        struct_size(out.cast_const(), "out")?;
        let recipe = recipe_from_c(recipe, "recipe")?;
        let role = match operand {
            NVFP4_OPERAND_ACTIVATION => Role::Activation,
            NVFP4_OPERAND_WEIGHT => Role::Weight,
            NVFP4_OPERAND_GRADIENT => Role::Gradient,
            _ => {
                return Err(Error::InvalidArgument(format!(
                    "operand is {operand}, want NVFP4_OPERAND_ACTIVATION = 0, _WEIGHT = 1 or _GRADIENT = 2"
                )))
            }
        };
        let mut desc = MaybeUninit::<nvfp4_quantize_desc>::zeroed().assume_init();
        desc.rowwise = convert::options_to_c(recipe.options(role, false));
        desc.columnwise = convert::options_to_c(recipe.options(role, true));
        desc.nonfinite = recipe.nonfinite as u32;
        write_back(out, &desc);
        Ok(())
    })
}
