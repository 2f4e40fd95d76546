//! The table of groups that the grouped kernels read (kernels/groups.cu): made on the device from the caller's offsets, in
//! the call's workspace.

use super::driver::Stream;
use super::Cuda;
use crate::plan::Groups;
use crate::{Error, Result};

/// An entry of the table, and kernel parameters, as kernels/groups.cuh has them.
const ENTRY: usize = 48;

#[repr(C)]
#[derive(Clone, Copy)]
struct Params {
    offsets: *const i64,
    table: *mut u8,
    count: i64,
    total: i64,
    align: i64,
    capacity: i64,
    row_step: i64,
    column_step: i64,
}

const _: () = assert!(size_of::<Params>() == 64);

/// How the groups are laid out and cut.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Rows of tokens that there are, columns of a columnwise copy, and what groups start at multiples of there.
    pub total: usize,
    pub capacity: usize,
    pub align: usize,
    /// Rows and columns of a tile.
    pub row_step: usize,
    pub column_step: usize,
}

/// Bytes of a table.
pub fn bytes(groups: &Groups) -> usize {
    (ENTRY * (groups.count + 1)).next_multiple_of(256)
}

/// Checks that the workspace holds `need` bytes.
pub fn check(workspace: *mut u8, have: usize, need: usize, field: &str) -> Result<()> {
    let have = if workspace.is_null() { 0 } else { have };
    if have < need {
        return Err(Error::BufferSize(format!(
            "{field}_bytes is {have}, {need} are needed on a GPU"
        )));
    }
    if !(workspace as usize).is_multiple_of(256) {
        return Err(Error::Alignment(format!(
            "{field} is at {workspace:p}, want a multiple of 256"
        )));
    }
    Ok(())
}

/// Makes a table at `table`.
pub fn table(cuda: &Cuda, groups: &Groups, cut: Cut, table: *mut u8, stream: Stream) -> Result<()> {
    let p = Params {
        offsets: groups.offsets,
        table,
        count: groups.count as i64,
        total: cut.total as i64,
        align: cut.align as i64,
        capacity: cut.capacity as i64,
        row_step: cut.row_step as i64,
        column_step: cut.column_step as i64,
    };
    cuda.kernels.group_table.launch(stream, 1, 1, &p)
}
