//! What the strict machine reports when it stops.

use std::fmt;

/// A kernel stopped: what happened, and exactly where.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Driver error that the host sees (700 illegal address, 716 misaligned, 719 launch failed, ..).
    pub code: i32,
    pub kernel: String,
    pub cta: [u32; 3],
    pub thread: [u32; 3],
    pub ptx_line: u32,
    /// CUDA source file and line, when the PTX has line information.
    pub source: Option<String>,
    pub ptx_text: String,
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (c, t) = (self.cta, self.thread);
        writeln!(f, "emulator: {}", self.what)?;
        writeln!(f, "  kernel {} block ({},{},{}) thread ({},{},{})", self.kernel, c[0], c[1], c[2], t[0], t[1], t[2])?;
        write!(f, "  PTX line {}: {}", self.ptx_line, self.ptx_text.trim())?;
        match &self.source {
            Some(s) => write!(f, "\n  source {s}"),
            None => write!(f, "\n  source unknown (compile with -lineinfo)"),
        }
    }
}

pub const ILLEGAL_ADDRESS: i32 = 700;
pub const ASSERT: i32 = 710;
pub const ILLEGAL_INSTRUCTION: i32 = 715;
pub const MISALIGNED: i32 = 716;
pub const LAUNCH_FAILED: i32 = 719;
