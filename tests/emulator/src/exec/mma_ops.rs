//! Matrix instructions.
pub struct MmaOp;
#[derive(Default)]
pub struct TensorMemory;
impl TensorMemory {
    pub fn leaked(&self) -> Option<String> {
        None
    }
}
