//! Four over six: the better of two block scales (docs/format.md, section 8).

use super::Select;

/// Does this choice try two scales a block?
pub fn is_selected(select: Select) -> bool {
    matches!(
        select,
        Select::FourOverSixMae | Select::FourOverSixMse | Select::FourOverSixAbsMax
    )
}
