//! Named recipes: how each operand of a linear layer is quantized in each direction. Pure data.
//!
//! fprop: y = x w^T contracts in_features, so x and w are quantized rowwise. dgrad: dx = dy w contracts out_features:
//! dy rowwise, w columnwise. wgrad: dw = dy^T x contracts tokens: dy and x columnwise.

use crate::numerics::{Accumulate, Block, Format, Nonfinite, Options, Rounding, ScaleRule};
use crate::{Error, Result};

/// What an operand is in a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    Activation,
    Weight,
    Gradient,
}

/// How a linear layer is trained. Every field may be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recipe {
    pub activation_rowwise: Options,
    pub activation_columnwise: Options,
    pub weight_rowwise: Options,
    pub weight_columnwise: Options,
    pub gradient_rowwise: Options,
    pub gradient_columnwise: Options,
    /// Of all three products.
    pub accumulate: Accumulate,
    /// Of all quantizers.
    pub nonfinite: Nonfinite,
}

/// Names that `Recipe::named` knows.
pub const NAMES: [&str; 6] = [
    "nvfp4",
    "te_nvfp4",
    "nvfp4_no_rht",
    "te_nvfp4_no_rht",
    "mxfp4",
    "bf16",
];

impl Recipe {
    /// - `nvfp4` (`te_nvfp4`): 1x16 blocks, 16x16 tiles for weights, stochastic rounding of gradients, a transform of
    ///   16 on both operands of wgrad (arXiv 2509.25149; what TransformerEngine's NVFP4 recipe does).
    /// - `nvfp4_no_rht` (`te_nvfp4_no_rht`): the same without the transform.
    /// - `mxfp4`: 1x32 blocks, 32x32 tiles for weights, exponent rule FLOOR (OCP MX 1.0); gradients with stochastic
    ///   rounding and rule CEIL, under which nothing clips.
    /// - `bf16`: operands rounded to bfloat16, for comparison.
    pub fn named(name: &str) -> Result<Recipe> {
        match name {
            "nvfp4" | "te_nvfp4" => Ok(Recipe::nvfp4(16)),
            "nvfp4_no_rht" | "te_nvfp4_no_rht" => Ok(Recipe::nvfp4(0)),
            "mxfp4" => Ok(Recipe::mxfp4()),
            "bf16" => Ok(Recipe::bf16()),
            _ => Err(Error::InvalidArgument(format!(
                "recipe name is {name:?}, want one of {}",
                NAMES.join(", ")
            ))),
        }
    }

    fn nvfp4(hadamard: u32) -> Recipe {
        let plain = Options::default();
        let tiles = Options {
            block: Block::TwoD,
            ..plain
        };
        let stochastic = Options {
            rounding: Rounding::Stochastic,
            ..plain
        };
        Recipe {
            activation_rowwise: plain,
            activation_columnwise: Options { hadamard, ..plain },
            weight_rowwise: tiles,
            weight_columnwise: tiles,
            gradient_rowwise: stochastic,
            gradient_columnwise: Options {
                hadamard,
                ..stochastic
            },
            ..Recipe::default()
        }
    }

    fn mxfp4() -> Recipe {
        let plain = Options {
            format: Format::Mxfp4,
            ..Options::default()
        };
        let tiles = Options {
            block: Block::TwoD,
            ..plain
        };
        let gradient = Options {
            rounding: Rounding::Stochastic,
            scale_rule: ScaleRule::Ceil,
            ..plain
        };
        Recipe {
            activation_rowwise: plain,
            activation_columnwise: plain,
            weight_rowwise: tiles,
            weight_columnwise: tiles,
            gradient_rowwise: gradient,
            gradient_columnwise: gradient,
            ..Recipe::default()
        }
    }

    fn bf16() -> Recipe {
        let o = Options {
            format: Format::Bf16,
            ..Options::default()
        };
        Recipe {
            activation_rowwise: o,
            activation_columnwise: o,
            weight_rowwise: o,
            weight_columnwise: o,
            gradient_rowwise: o,
            gradient_columnwise: o,
            ..Recipe::default()
        }
    }

    /// Options of an operand's rowwise or columnwise copy.
    pub fn options(&self, role: Role, columnwise: bool) -> &Options {
        match (role, columnwise) {
            (Role::Activation, false) => &self.activation_rowwise,
            (Role::Activation, true) => &self.activation_columnwise,
            (Role::Weight, false) => &self.weight_rowwise,
            (Role::Weight, true) => &self.weight_columnwise,
            (Role::Gradient, false) => &self.gradient_rowwise,
            (Role::Gradient, true) => &self.gradient_columnwise,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::options::check;

    #[test]
    fn every_name_gives_legal_options() {
        for name in NAMES {
            let recipe = Recipe::named(name).unwrap();
            for role in [Role::Activation, Role::Weight, Role::Gradient] {
                for columnwise in [false, true] {
                    check(name, recipe.options(role, columnwise)).unwrap();
                }
            }
        }
        assert_eq!(
            Recipe::named("te_nvfp4").unwrap(),
            Recipe::named("nvfp4").unwrap()
        );
        assert_ne!(
            Recipe::named("nvfp4_no_rht").unwrap(),
            Recipe::named("nvfp4").unwrap()
        );
        let error = Recipe::named("fp4").unwrap_err().to_string();
        assert!(
            error.contains("\"fp4\"") && error.contains("mxfp4"),
            "{error}"
        );
    }
}
