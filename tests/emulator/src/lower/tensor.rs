//! Tensor copies and matrix instructions.

use super::*;

impl<'m> Lower<'m> {
    pub(super) fn tensor(&mut self, _i: &Instr, _p: &[&str]) -> Res<bool> {
        Ok(false)
    }
    pub(super) fn tensor_copy(&mut self, _i: &Instr, _p: &[&str]) -> Res<bool> {
        Ok(false)
    }
    pub(super) fn cvt_narrow(&mut self, _i: &Instr, _p: &[&str]) -> Res<Option<bool>> {
        Ok(None)
    }
}
