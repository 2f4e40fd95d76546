//! The interpreter. One `Machine` executes one cluster of thread blocks at a
//! time; the launch runs several machines on host threads.

pub mod alu;
pub mod async_copy;
pub mod atom;
pub mod barrier;
pub mod branch;
pub mod clc;
pub mod clocks;
pub mod cvt;
pub mod float;
pub mod half;
pub mod lanes;
pub mod ldst;
pub mod matrix_ldst;
pub mod mbar;
pub mod mma_ops;
pub mod printf;
pub mod run;
pub mod sel;
pub mod space;
pub mod sreg;
pub mod tma_ops;
pub mod warp_ops;

use crate::arch::Arch;
use crate::counters::Counts;
use crate::fault::Fault;
use crate::ir::{Inst, Kernel};
use crate::mem::Alloc;
use crate::shared::{Clocks, Shared};
use std::collections::HashMap;
use std::sync::Arc;

pub const NO_REC: u32 = u32::MAX;

/// Where lanes of a warp that travel together stand.
#[derive(Clone, Debug)]
pub struct Frag {
    pub pc: u32,
    pub mask: u32,
    /// Innermost reconvergence point these lanes must stop at.
    pub rec: u32,
    pub state: State,
}

#[derive(Clone, Debug, PartialEq)]
pub enum State {
    Ready,
    /// Gated: the lanes `need` must all arrive (at the same pc unless `anywhere`).
    Gate {
        need: u32,
        active: u32,
        anywhere: bool,
    },
    /// Arrived at a block barrier.
    Barrier(u32),
    /// Arrived at the cluster barrier.
    Cluster,
    /// Polls something that only another warp or an asynchronous copy changes.
    Poll(&'static str, u64),
}

/// A point where diverged lanes meet again.
#[derive(Clone, Debug)]
pub struct Rec {
    pub pc: u32,
    pub parent: u32,
    /// Lanes still on their way.
    pub pending: u32,
    pub arrived: u32,
}

pub struct Warp {
    pub cta: usize,
    /// Index in the block.
    pub index: u32,
    pub regs: Vec<u128>,
    pub preds: Vec<u32>,
    pub frags: Vec<Frag>,
    pub recs: Vec<Rec>,
    pub alive: u32,
    pub local: Vec<u8>,
    pub vc: Clocks,
    /// What of each actor's writes is known to be visible to the async proxy.
    pub pvc: Clocks,
    pub clock: u32,
    pub groups: async_copy::Groups,
    pub phases: HashMap<u64, u64>,
    pub steps: u64,
}

impl Warp {
    pub fn done(&self) -> bool {
        self.alive == 0
    }
}

pub struct Cta {
    pub id: [u32; 3],
    pub rank: u32,
    pub first_warp: usize,
    pub warps: usize,
    pub smem: Shared,
    pub bars: Vec<barrier::Bar>,
    pub mbars: HashMap<u32, mbar::Mbar>,
    /// Clocks carried by strong accesses to shared words.
    pub flags: HashMap<u32, Clocks>,
    pub tmem: mma_ops::TensorMemory,
}

/// What all machines of a launch share.
pub struct Launch {
    pub kernel: Arc<Kernel>,
    pub arch: Arch,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    pub dyn_smem: u32,
    pub params: Vec<u8>,
    pub allocs: Vec<Arc<Alloc>>,
    pub seed: u64,
    pub strict: Strict,
    pub next_cluster: std::sync::atomic::AtomicU32,
    pub stop: std::sync::atomic::AtomicBool,
}

#[derive(Clone, Copy, Debug)]
pub struct Strict {
    pub uninit: bool,
    pub races: bool,
    pub proxy: bool,
    /// tcgen05.fence::before/after_thread_sync are needed to order tensor memory.
    pub fences: bool,
}

pub struct Machine {
    pub l: Arc<Launch>,
    // The warp that runs now.
    pub regs: *mut u32,
    pub preds: *mut u32,
    /// Lanes that execute the current instruction.
    pub mask: u32,
    pub w: usize,
    pub frag: usize,
    pub pc: u32,
    // The cluster.
    pub warps: Vec<Warp>,
    pub ctas: Vec<Cta>,
    pub pending: Vec<async_copy::Pending>,
    pub cluster_bar: barrier::ClusterBar,
    pub next_actor: u32,
    pub next_op: u64,
    // Bookkeeping.
    pub rng: u64,
    pub counts: Counts,
    pub last_alloc: usize,
}

// SAFETY: the raw pointers point into `warps`, which the machine owns.
unsafe impl Send for Machine {}

impl Machine {
    pub fn rand(&mut self) -> u64 {
        // splitmix64
        self.rng = self.rng.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.rng;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    #[inline(always)]
    pub fn cta(&self) -> usize {
        self.warps[self.w].cta
    }

    /// Thread coordinates of a lane of the current warp.
    pub fn thread(&self, lane: u32) -> [u32; 3] {
        let t = self.warps[self.w].index * 32 + lane;
        let b = self.l.block;
        [t % b[0], t / b[0] % b[1], t / (b[0] * b[1])]
    }

    pub fn fault_at(&self, i: &Inst, lane: u32, code: i32, what: String) -> Box<Fault> {
        let k = &self.l.kernel;
        let loc = k.locs.get(i.loc as usize).copied().unwrap_or_default();
        let place = |file: u32, line: u32| format!("{}:{line}", k.files.get(&file).cloned().unwrap_or_else(|| format!("file {file}")));
        let source = (loc.line != 0).then(|| {
            let mut s = place(loc.file, loc.line);
            // Outwards through the calls that were inlined.
            let mut at = loc;
            while at.at_line != 0 && s.len() < 2000 {
                s += &format!(", inlined at {}", place(at.at_file, at.at_line));
                let near = i.loc as usize + 8;
                let outer = k.locs[..near.min(k.locs.len())].iter().rev().find(|l| (l.file, l.line) == (at.at_file, at.at_line));
                at = outer.copied().unwrap_or_default();
            }
            s
        });
        Box::new(Fault {
            code,
            kernel: k.name.clone(),
            cta: self.ctas[self.cta()].id,
            thread: self.thread(lane),
            ptx_line: i.line,
            source,
            ptx_text: k.text.lines().nth(i.line.saturating_sub(1) as usize).unwrap_or("").to_string(),
            what,
        })
    }

    /// A fault of the first active lane.
    pub fn fault(&self, i: &Inst, what: impl Into<String>) -> Box<Fault> {
        let lane = if self.mask == 0 { 0 } else { self.mask.trailing_zeros() };
        self.fault_at(i, lane, crate::fault::LAUNCH_FAILED, what.into())
    }
}
